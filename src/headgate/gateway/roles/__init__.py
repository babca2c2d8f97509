"""The role services of a domain at a gateway: requests, certificates, and the credential graph."""

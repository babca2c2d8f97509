"""Deliveries as Arrow blobs, and the file they are kept in."""

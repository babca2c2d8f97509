"""Policy and subscriptions as rows and numbers, made from the ledger and kept up to date."""

"""What commands share: consoles, errors, the domain and connection they are given, words for facts."""

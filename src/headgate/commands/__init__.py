"""One function for each use case: plain values in, plain values or a coded error out."""

"""Commands about policy: keep it in files, test it, prove things of it, explain what it decided."""

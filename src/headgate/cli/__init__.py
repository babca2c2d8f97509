"""The `headgate` command. Each command is one module; Spark is imported only by those that run it."""

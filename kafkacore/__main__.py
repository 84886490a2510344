"""`python -m kafkacore` is the command `kafkacore`."""

from kafkacore.cli import main

if __name__ == "__main__":
    main()

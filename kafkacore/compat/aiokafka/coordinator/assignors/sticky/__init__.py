"""The way to the sticky assignor's name."""

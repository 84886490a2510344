"""The network floor: transports, channels, the selector, and the client that sends requests over them."""

"""Image sets and protocols."""

"""Helpers used by the other packages: arguments, devices, files, threads and packed codes."""

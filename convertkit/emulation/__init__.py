"""Artifacts on another processor: arm64 under QEMU's user emulation, beside this machine's own."""

"""What a TFLite file costs on a core that is not here: counted under emulation, timed by the core's schedule."""

"""Errors that are about the card or the compiler, not about the caller's input."""


class CompileError(RuntimeError):
    """A kernel did not compile; the message has the kernel, its constants and the compiler's log."""


class LaunchError(RuntimeError):
    """A kernel could not be loaded or launched; the message has the kernel, the problem and the driver's error."""

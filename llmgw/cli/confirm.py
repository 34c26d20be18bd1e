"""Asking before something that cannot be taken back; never without a terminal."""

import sys

import click

from llmgw.base import UsageError


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """Return when the operator agrees. Without a terminal nobody is asked: UsageError names the flag to give."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("this needs a confirmation, and there is no terminal to ask on", hint=f"give {flag}")
    if not click.confirm(question, err=True):
        raise click.Abort

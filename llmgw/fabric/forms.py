"""Other outputs that end up where a scan should be: which one it is, and what to run instead."""

import re

_FORMS = (
    (
        re.compile(r"(?:SW|CA|RT)\s+\d+\s+\d+\s+0x[0-9a-fA-F]{16}\s+\S+\s+\S+"),
        "this is the ports report (ibnetdiscover -p), which shows rates of ports that are down; run it without -p",
    ),
    (
        re.compile(r"(?:Ca|Switch|Router)\s*: 0x[0-9a-fA-F]+ ports \d+"),
        "this is a list of devices (ibnetdiscover -l, -H, -S or -R), which has no cables; run it without",
    ),
    (
        re.compile(r"(?:Switch|CA): 0x[0-9a-fA-F]+ .*:\s*$|.*==\(.*\)==>"),
        "this is the output of iblinkinfo; run ibnetdiscover",
    ),
    (
        re.compile(r"[<>] (?:vendid=|devid=|Switch\s|Ca\s|\[\d)"),
        "this is a comparison (ibnetdiscover --diff); run it without, and compare with llmgw fabric diff",
    ),
    (
        re.compile(r"\{ (?:SW|CA|CA-SM|SW-SM) Ports:[0-9a-fA-F]{2} SystemGUID:"),
        "this is opensm's subnet list (opensm-subnet.lst); run ibnetdiscover",
    ),
    (
        re.compile(r"START_(?:NODES|LINKS|PORTS)\b"),
        "this is ibdiagnet's database (.db_csv); use its .ibnetdiscover file",
    ),
    (re.compile(r"# Port (?:extended )?counters: Lid \d+"), "this is the output of perfquery; run ibnetdiscover"),
)


def another_form(line: str) -> str | None:
    """What the line is of and what to do, where it belongs to another tool's output; None where it does not."""
    for form, what in _FORMS:
        if form.match(line):
            return what
    return None

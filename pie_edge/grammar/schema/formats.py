"""String formats as patterns. Each matches only strings that are valid by its standard, and no endless ones."""

from __future__ import annotations

_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = rf"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_HOUR = r"(?:[01][0-9]|2[0-3])"
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_SECONDS = r"[0-9]{1,9}S"
_MINUTES = rf"[0-9]{{1,9}}M(?:{_SECONDS})?"
_HOURS = rf"[0-9]{{1,9}}H(?:{_MINUTES})?"
_CLOCK = rf"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS = r"[0-9]{1,9}D"
_MONTHS = rf"[0-9]{{1,9}}M(?:{_DAYS})?"
_YEARS = rf"[0-9]{{1,9}}Y(?:{_MONTHS})?"
_DURATION = rf"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_CLOCK})?|{_CLOCK}|[0-9]{{1,9}}W)"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LAST_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = rf"(?:{_LABEL}\.){{0,2}}{_LAST_LABEL}"
_ATOM = r"[A-Za-z0-9_+-]{1,20}"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOSTNAME}"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = r"[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join(
    [
        rf"(?:{_GROUP}:){{7}}{_GROUP}",
        rf"(?:{_GROUP}:){{1,7}}:",
        *(rf"(?:{_GROUP}:){{1,{before}}}(?::{_GROUP}){{1,{7 - before}}}" for before in range(6, 0, -1)),
        rf":(?::{_GROUP}){{1,7}}",
        "::",
    ]
)
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_CHARACTER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_AFTER = rf"(?:\?(?:{_CHARACTER}|[/?])*)?(?:#(?:{_CHARACTER}|[/?])*)?"
_AUTHORITY = rf"//(?:{_HOSTNAME}|{_IPV4})(?::[0-9]{{1,5}})?(?:/{_CHARACTER}*)*"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]{{0,15}}:(?:{_AUTHORITY}|{_CHARACTER}+(?:/{_CHARACTER}*)*){_AFTER}"
_JSON_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

PATTERNS = {
    name: f"^(?:{pattern})$"
    for name, pattern in {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}T{_TIME}",
        "duration": _DURATION,
        "hostname": _HOSTNAME,
        "email": _EMAIL,
        "ipv4": _IPV4,
        "ipv6": _IPV6,
        "uuid": _UUID,
        "uri": _URI,
        "json-pointer": _JSON_POINTER,
    }.items()
}

RANGES: dict[str, tuple[float, float] | None] = {
    "int32": (-(2**31), 2**31 - 1),
    # The matching library's bounds are double-precision numbers: the nearest ones inside.
    "int64": (-9.2e18, 9.2e18),
    "float": None,
    "double": None,
}
"""OpenAPI's formats of numbers, with what they may be."""

"""`toolgate doctor`: is everything reachable and sane; `--probe` asks only whether the gateway takes requests."""

import http.client
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import click
from attrs import asdict, frozen

from gateway.cli.options import json_option
from gateway.config.load import Settings, inspect
from gateway.config.urls import listening_url
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS

if TYPE_CHECKING:
    from gateway.cli.look.check import Checked

__all__ = ["Finding", "doctor", "probe"]

PROBE_TIMEOUT_S = 3.0

_SCHEMA_VERSION = 1
_MARKS = {"ok": "ok     ", "warning": "warning", "fault": "FAULT  "}


@frozen(kw_only=True)
class Finding:
    """One thing that was looked at, and what to do about it if it is not well."""

    about: str
    level: Literal["ok", "warning", "fault"]
    message: str
    advice: str = ""


@click.command(short_help="See whether everything that the gateway needs is there.")
@click.option("--probe", "only_probe", is_flag=True, help="Ask only whether the running gateway takes requests.")
@json_option
@click.pass_context
def doctor(context: click.Context, only_probe: bool, as_json: bool) -> None:
    """See whether everything that the gateway needs is reachable and sane.

    Looks at the settings, the model server, the store, the ports, the clock and the limits of the process, and says
    what to do about each fault. Exits with 0 if there is none, 1 if there is one, 78 if it is in the settings. With
    --probe, for health checks, it exits with 0 if the gateway at GATEWAY_HOST and GATEWAY_PORT is ready, 1 if not.

    What a model server can is asked by `toolgate probe`.

    \b
    Examples:
      toolgate doctor
      toolgate doctor --json
      toolgate doctor --probe
    """
    if only_probe:
        findings = [probe(inspect(os.environ)[0])]
    else:
        from gateway.cli.look.check import checked  # here: a health check has no time for them
        from gateway.cli.run.doctor_checks import examine

        found = checked(os.environ)
        findings = [*_of_settings(found), *examine(found.settings)]
    _report(findings, as_json=as_json)
    context.exit(_exit_code(findings))


def probe(settings: Settings) -> Finding:
    """Whether the gateway that these settings describe takes requests."""
    url = listening_url(settings)
    try:
        status = _status(url.removeprefix("http://"), "/readyz")
    except (OSError, http.client.HTTPException) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        return Finding(
            about="gateway",
            level="fault",
            message=f"nothing answers at {url}: {said}",
            advice="start it, or set GATEWAY_HOST and GATEWAY_PORT to where it listens",
        )
    if status == 200:
        return Finding(about="gateway", level="ok", message=f"ready at {url}")
    if status == 503:
        message, advice = "is draining", "wait for its successor"
    else:
        message, advice = f"answers {status}", "is it another program?"
    return Finding(about="gateway", level="fault", message=f"{url} {message}", advice=advice)


def _status(address: str, path: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=PROBE_TIMEOUT_S)
    try:
        # Without keys the gateway answers to few names, whatever its address is; this is always one of them.
        connection.request("GET", path, headers={"Connection": "close", "Host": "localhost"})
        return connection.getresponse().status
    finally:
        connection.close()


def _of_settings(checked: "Checked") -> list[Finding]:
    found = [
        Finding(about="settings", level="fault", message=fault, advice="see `toolgate settings`")
        for fault in dict.fromkeys(checked.faults)
    ]
    found += [Finding(about="settings", level="warning", message=warning) for warning in checked.warnings]
    return found or [Finding(about="settings", level="ok", message=f"no fault ({checked.settings.digest()})")]


def _report(findings: Iterable[Finding], *, as_json: bool) -> None:
    findings = list(findings)
    if as_json:
        document = {
            "schema_version": _SCHEMA_VERSION,
            "ok": not any(finding.level == "fault" for finding in findings),
            "findings": [asdict(finding) for finding in findings],
        }
        click.echo(json.dumps(document, indent=2))
        return
    for finding in findings:
        click.echo(f"{_MARKS[finding.level]}  {finding.about:<11}  {finding.message}")
        if finding.advice:
            click.echo(f"{'':9}{'':13}-> {finding.advice}")


def _exit_code(findings: Iterable[Finding]) -> int:
    faulty = {finding.about for finding in findings if finding.level == "fault"}
    if not faulty:
        return 0
    return EXIT_SETTINGS if "settings" in faulty else EXIT_FAILED

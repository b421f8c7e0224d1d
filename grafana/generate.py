"""Writes the dashboards as JSON: `python grafana/generate.py`, or with `--check` says whether they are up to date."""

import json
import sys
from pathlib import Path

import click
from boards import BOARDS, Board
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from panels import ALL, SOURCE, built

FOLDER = Path(__file__).parent / "dashboards"
TAG = "toolgate"
_MARKS = (
    (
        "Rollbacks",
        "red",
        f'max by (job) (changes(toolgate_rollout_state{{{ALL},state="rolled_back"}}[1m])) > 0 '
        f'and max by (job) (toolgate_rollout_state{{{ALL},state="rolled_back"}}) == 1',
    ),
    ("Rollout changes", "blue", f"max by (job) (changes(toolgate_rollout_epoch{{{ALL}}}[1m])) > 0"),
    ("Restarts", "#8e8e8e", f"sum by (instance) (changes(process_start_time_seconds{{{ALL}}}[1m])) > 0"),
)


def dashboard(board: Board) -> builders.Dashboard:
    """The board as the SDK's builder, with the variables and marks that all have."""
    builder = (
        builders.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(board.range, "now")
        .refresh("30s")
        .readonly()
        .link(_link())
    )
    for variable in _variables(board):
        builder.with_variable(variable)
    for name, colour, expr in _MARKS:
        builder.annotation(_mark(name, colour, expr))
    number = 0
    for row in board.rows:
        number += 1
        builder.with_row(builders.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            builder.with_panel(built(panel, number))
    return builder


def text(board: Board) -> str:
    """The JSON that Grafana reads."""
    return json.dumps(dashboard(board).build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _link() -> builders.DashboardLink:
    return (
        builders.DashboardLink("Toolgate")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )


def _mark(name: str, colour: str, expr: str) -> builders.AnnotationQuery:
    return builders.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(colour).expr(expr)


_Variable = builders.DatasourceVariable | builders.QueryVariable | builders.TextBoxVariable


def _variables(board: Board) -> list[_Variable]:
    source = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    found: list[_Variable] = [
        source,
        _labels("job", "Job", "label_values(toolgate_build_info, job)"),
        _labels("instance", "Instance", 'label_values(toolgate_build_info{job=~"$job"}, instance)'),
        _labels("arm", "Arm", f"label_values(toolgate_requests_total{{{ALL}}}, arm)"),
    ]
    if board.has_nginx:
        found.append(_labels("nginx_job", "nginx job", "label_values(nginx_http_response_count_total, job)"))
    if "${inspector}" in str(board.rows):
        found.append(_address("inspector", "Inspector", "http://127.0.0.1:8790"))
    if "${report}" in str(board.rows):
        found.append(_address("report", "Report", "http://127.0.0.1:8790/report.html"))
    return found


def _address(name: str, label: str, default: str) -> builders.TextBoxVariable:
    """What every site has elsewhere: it is typed in once, and kept in the dashboard's address."""
    said = models.VariableOption(text=default, value=default, selected=True)
    return builders.TextBoxVariable(name).label(label).default_value(default).current(said)


def _labels(name: str, label: str, query: str) -> builders.QueryVariable:
    everything = models.VariableOption(text="All", value="$__all", selected=True)
    return (
        builders.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(everything)
    )


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a file is not what this program writes.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Where the files are.")
def main(check: bool, folder: Path) -> None:
    """Write the dashboards as JSON."""
    wanted = {folder / f"{board.uid.removeprefix('toolgate-')}.json": text(board) for board in BOARDS}
    stale = [path for path, content in wanted.items() if not path.exists() or path.read_text("utf-8") != content]
    stale += sorted(set(folder.glob("*.json")) - wanted.keys())
    if check:
        for path in stale:
            click.echo(f"{path.name} is not up to date", err=True)
        sys.exit(1 if stale else 0)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in wanted.items():
        path.write_text(content, encoding="utf-8")
        click.echo(path)


if __name__ == "__main__":
    main()

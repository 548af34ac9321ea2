from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from azq import games
from azq.config import RunSections, dump_run, load, parse_run
from azq.config.loading import to_toml
from azq.errors import ConfigError, NotFound
from azq.host import rundir
from azq.ledger.types import no_run
from azq.presets import preset


def test_settings_survive_the_file(tmp_path: Path) -> None:
    sections = load(None, ["learner.lr_drops=[0.5]", "run.seed=7"]).run_sections()
    run = rundir.RunDir(tmp_path, "first")
    run.create(sections)
    assert run.sections() == sections
    assert {part.name for part in run.path.iterdir() if part.is_dir()} == set(rundir.PARTS)
    assert rundir.list_runs(tmp_path) == ["first"]


def test_toml_writer_agrees_with_the_reader() -> None:
    stages = {"lr_schedule": [{"at": 0.25, "factor": 0.5}, {"at": 0.5, "factor": 0.1}]}
    values = dump_run(parse_run({"learner": stages}, "here"))
    assert tomllib.loads(to_toml(values)) == values


def test_a_missing_run_names_those_there_are(tmp_path: Path) -> None:
    rundir.RunDir(tmp_path, "here").create(RunSections())
    with pytest.raises(NotFound, match="here"):
        rundir.RunDir(tmp_path, "gone").values()


@pytest.mark.parametrize("variant", ["", "gpu"])
@pytest.mark.parametrize("game", games.names())
def test_every_game_has_a_preset_for_two_cores_and_one_for_a_gpu(game: str, variant: str) -> None:
    sections = parse_run(preset(game, variant), game)
    assert sections.run.game == game
    assert games.load(game, **sections.run.params).name == game


def test_a_broken_run_file_is_named(tmp_path: Path) -> None:
    run = rundir.RunDir(tmp_path, "broken")
    run.create(RunSections())
    run.settings.write_text("[run\n")
    with pytest.raises(ConfigError, match=r"run\.toml"):
        run.values()


def test_a_home_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    taken = "a file has that name"
    for place, why in ((tmp_path / "file", taken), (tmp_path / "file" / "below", taken), (Path("/proc/no"), "No such")):
        with pytest.raises(ConfigError, match=why) as refused:
            rundir.make_folder(place)
        assert "--set home=" in str(refused.value)


def test_a_run_that_only_its_folder_knows_is_named_with_what_goes_on_from_there(tmp_path: Path) -> None:
    rundir.RunDir(tmp_path, "here").create(load().run_sections())
    words: dict[str, str] = {}
    for run in ("here", "nowhere"):
        with pytest.raises(NotFound) as caught, rundir.naming_folder(tmp_path):
            raise no_run(run, [])
        words[run] = str(caught.value)
    assert words["nowhere"] == "no run 'nowhere'; there are: none"
    assert words["here"].startswith(f"no run 'here'; there are: none; its folder {tmp_path / 'here'} is there: `azq up --run here` goes on")
    assert f"azq runs restore {tmp_path / 'here'}" in words["here"]

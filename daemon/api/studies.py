"""Studies: what sweeps tell of themselves, for the dashboard."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi import status as http

from azq.config import RUN_NAME_PATTERN
from azq.errors import InvalidRequest
from azq.status.studies import StudyReport, keep, kept, known
from daemon.api.access import OPERATE, READ
from daemon.api.audit import QUESTION
from daemon.api.services import Use

router = APIRouter(prefix="/v1/studies", tags=["studies"])
StudyName = Annotated[str, Path(pattern=RUN_NAME_PATTERN, max_length=40)]


@router.get("", response_model_exclude={"__all__": {"trials", "importances"}}, dependencies=[READ])
def list_studies(use: Use) -> list[StudyReport]:
    """Studies that told of themselves in the last thirty days, the newest word first, without their trials."""
    return known(use.bus)


@router.get("/{study}", dependencies=[READ])
def show_study(study: StudyName, use: Use) -> StudyReport:
    """A study's trials, and what mattered."""
    return kept(use.bus, study)


# Told every few seconds, which in the audit would push out what people did.
@router.put("/{study}", status_code=http.HTTP_204_NO_CONTENT, dependencies=[OPERATE, QUESTION])
def tell_study(study: StudyName, body: StudyReport, use: Use) -> None:
    """Keeps what `azq sweep` found so far, in place of what it told before; for thirty days."""
    if body.study != study:
        raise InvalidRequest(f"the report is of study {body.study}, the address names {study}; send it to its own")
    keep(use.bus, body)

"""The pipeline's part of the demo: the project that `kafkacore pipeline init` writes, run and compared with pandas."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kafkacore.cli.options import Failure
from kafkacore.cli.pipeline import session, update
from kafkacore.spark.pipeline.project import Project, create


def pipeline_demo(plot: Path, visible: bool) -> dict[str, Any]:
    """Runs every wave of the example through the pipeline, on a broker of its own in a directory that does not remain.

    Args:
        plot: where its picture goes.
        visible: whether progress is shown.

    Returns:
        Records sent, seconds of each update, and what the comparison said.
    """
    with tempfile.TemporaryDirectory(prefix="kafkacore-pipeline-") as directory:
        root = Path(directory) / "flights"
        create(root, "flights")
        sent: list[int] = []
        seconds: list[float] = []
        with session(Project.find(root), None, None, visible=visible) as (running, feed, recorder):
            while records := feed():
                sent.append(records)
                seconds.append(update(running, recorder, {}, visible=visible))
        parent = str(Path(__file__).resolve().parents[2])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([parent, *filter(None, [os.environ.get("PYTHONPATH")])])}
        checked = subprocess.run([sys.executable, "check.py"], cwd=root, env=environment, capture_output=True, text=True, check=False)
        if checked.returncode:
            raise Failure(f"the pipeline's figures differ from a plain computation: {' '.join(checked.stderr.split())[-1000:]}")
        plot.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / "output" / "flights.png", plot)
    said = checked.stdout.splitlines()[0]
    return {"records": sum(sent), "updates": [round(each, 3) for each in seconds], "checked": said, "plot": str(plot)}

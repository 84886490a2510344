"""Histories by chance, for the tests of their checkers."""

from __future__ import annotations

from typing import Any, TypeVar

Scene = TypeVar("Scene", bound=Any)


def after(scene: Scene, steps: int) -> Scene:
    """The scene, so many steps later."""
    for _ in range(steps):
        scene.step()
    return scene

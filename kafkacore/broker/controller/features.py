"""Finalized features: how far all nodes of the cluster have agreed to go.

Source: org.apache.kafka.controller.FeatureControlManager.
"""

from __future__ import annotations

from kafkacore import errors
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.errors import KafkaError
from kafkacore.protocol import FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkacore.protocol.metadata_log import FeatureLevelRecord

METADATA_VERSION = "metadata.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(state: ControllerState, request: UpdateFeaturesRequest, version: int, now_ms: int) -> Written:
    """UpdateFeatures v0-2: all updates or none (KIP-1022). metadata.version stays: the records of the log have one form here."""
    records = []
    results = []
    for wanted in request.feature_updates:
        try:
            level = _check(state, wanted, version)
        except KafkaError as error:
            why = f"The update failed for all features since the following feature had an error: {error.message}"
            return Written([], UpdateFeaturesResponse(error_code=code_of(error), error_message=why))
        if level != state.image.features.get(wanted.feature, 0):
            records.append(FeatureLevelRecord(name=wanted.feature, feature_level=level))
        results.append(UpdatableFeatureResult(feature=wanted.feature, error_message="NONE"))
    return Written([] if request.validate_only else records, UpdateFeaturesResponse(error_message=None, results=results))


def _check(state: ControllerState, wanted: FeatureUpdateKey, version: int) -> int:
    name, level = wanted.feature, wanted.max_version_level
    kind = wanted.upgrade_type
    if version == 0:
        kind = SAFE_DOWNGRADE if wanted.allow_downgrade else UPGRADE

    def refuse(why: str) -> errors.InvalidUpdateVersion:
        return errors.InvalidUpdateVersion(f"Invalid update version {level} for feature {name}. {why}")

    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise refuse("The controller does not support the given upgrade type.")
    if level < 0:
        raise refuse("A feature version cannot be less than 0.")
    controller = min(state.image.nodes, default=0)
    if name not in state.image.supported_features:
        raise refuse(f"Local controller {controller} does not support this feature.")
    low, high = state.image.supported_features[name]
    if not low <= level <= high:
        raise refuse(f"Local controller {controller} only supports versions {low}-{high}")
    current = state.image.features.get(name, 0)
    if level < current and kind == UPGRADE:
        raise refuse("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
    if name == METADATA_VERSION and level != current:
        raise refuse("The records of the embedded broker's metadata log have one form.")
    return level

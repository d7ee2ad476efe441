"""Metrics of ranks and of lists of recommended items, against their formulas and against KerasRS."""

import keras
import numpy as np
import pytest

from keras_adaptive.metrics import MRR, NDCG, AveragePopularity, Coverage, HitRate, RankMetric
from tests.support.refusals import refused

FORMULAS = {
    HitRate(3): lambda ranks: ranks <= 3,
    NDCG(3): lambda ranks: (ranks <= 3) / np.log2(1 + ranks),
    NDCG(): lambda ranks: 1 / np.log2(1 + ranks),
    MRR(): lambda ranks: 1 / ranks,
    MRR(3): lambda ranks: (ranks <= 3) / ranks,
}


@pytest.mark.parametrize("metric", FORMULAS, ids=lambda metric: metric.name)
def test_a_metric_of_ranks_is_a_mean_over_the_targets_of_uneven_batches(metric):
    random, batches = np.random.default_rng(0), []
    for shape in ((4,), (2, 3), (1, 7)):
        batches.append((random.integers(1, 7, shape).astype("int32"), random.uniform(size=shape).astype("float32")))
        metric.update_state(keras.ops.convert_to_tensor(batches[-1][0]), sample_weight=batches[-1][1])
    ranks, weights = (np.concatenate([array.ravel() for array in column]) for column in zip(*batches, strict=True))
    values = FORMULAS[metric](ranks.astype("float64"))
    assert float(metric.result()) == pytest.approx(np.average(values, weights=weights), rel=1e-6)
    metric.reset_state()
    metric.update_state(ranks)
    assert float(metric.result()) == pytest.approx(values.mean(), rel=1e-6)


@pytest.mark.once
def test_they_are_the_metrics_of_keras_rs():
    """KerasRS reads lists of scores; all of its metrics agree on lists with one relevant item."""
    import keras_rs

    random = np.random.default_rng(1)
    scores, targets = random.normal(size=(12, 9)).astype("float32"), random.integers(0, 9, 12)
    relevant = np.eye(9, dtype="float32")[targets]
    ranks = 1 + np.sum(scores > scores[np.arange(12), targets][:, None], axis=1)
    pairs = [
        (HitRate(4), keras_rs.metrics.RecallAtK(k=4)),
        (NDCG(4), keras_rs.metrics.NDCG(k=4)),
        (NDCG(), keras_rs.metrics.NDCG()),
        (MRR(), keras_rs.metrics.MeanReciprocalRank()),
        (MRR(4), keras_rs.metrics.MeanReciprocalRank(k=4)),
    ]
    for ours, theirs in pairs:
        ours.update_state(ranks)
        theirs.update_state(relevant, scores)
        assert 0 < float(ours.result()) == pytest.approx(float(theirs.result()), abs=1e-6)


LISTS = np.array([[0, 1, 2], [3, 1, 0], [5, -1, 4], [-1, -1, 7]], "int32")


def test_coverage_is_the_share_of_the_items_that_are_recommended():
    metric = Coverage(2, items=8)
    metric.update_state(LISTS)
    assert float(metric.result()) == 4 / 8  # 0, 1, 3 and 5
    metric.update_state([[[6, 7]], [[0, 2]]], sample_weight=[[1.0], [0.0]])
    assert float(metric.result()) == 6 / 8
    metric.reset_state()
    metric.update_state([[8, 3]])  # 8 is no item
    assert float(metric.result()) == 1 / 8


def test_average_popularity_is_a_mean_over_lists():
    metric = AveragePopularity(2, counts=[60, 30, 20, 10, 5, 1])
    metric.update_state(LISTS)
    assert float(metric.result()) == pytest.approx((45 + 20 + 1) / 3)
    metric.reset_state()
    metric.update_state(LISTS, sample_weight=[1.0, 3.0, 0.0, 9.0])
    assert float(metric.result()) == pytest.approx((45 + 3 * 20) / 4)


@pytest.mark.once
def test_they_are_saved_by_their_arguments():
    for metric in (HitRate(3), NDCG(2, name="gain"), MRR(), Coverage(2, 5), AveragePopularity(2, [3, 1])):
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        assert type(copy) is type(metric) and copy.get_config() == metric.get_config() and copy.name == metric.name
    names = [HitRate(3).name, NDCG().name, MRR(5).name, Coverage(2, 5).name]
    assert names == ["hit_rate_at_3", "ndcg", "mrr_at_5", "coverage_at_2"]


@pytest.mark.once
def test_wrong_arguments_are_refused():
    for make in (HitRate, NDCG, MRR):
        refused(make, 0, match="`k` must be at least 1")
    refused(Coverage, 2, 0, match="`items` must be at least 1")
    refused(AveragePopularity, 2, [], match="`counts` must hold a number for every item")
    refused(HitRate(2).update_state, [1, 0], match="`ranks` must be at least 1, .* Received: ranks=0")
    refused(HitRate(2).update_state, [1, 2], [0.5], match=r"weights of the same shape.*\[\(2,\), \(1,\)\]")
    refused(NDCG(2).update_state, np.ones(2), np.ones((2, 5)), match="to `compile.* of a `LanguageModel` or `WordM")
    refused(Coverage(3, 9).update_state, [[1, 2]], match="lists of k=3 items. Received: shape=.1, 2.")
    refused(Coverage(2, 9).update_state, [[1, 2]], sample_weight=[1, 1], match="`sample_weight` must have the shape")
    refused(RankMetric().values, [1], match="`RankMetric` must implement `gain.ranks.`", error=NotImplementedError)

import pytest

from servelab.core.yaml_file import duration, estimate, figure, interval, is_noise, metric_label, percent


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1204.4, "1,204"),
        (99.97, "100"),
        (81.25, "81.2"),
        (9.999, "10.0"),
        (2.5, "2.50"),
        (0.02134, "0.0213"),
        (0.0, "0"),
        (-12.5, "−12.5"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_figure_has_sensible_digits(value, text):
    assert figure(value) == text


def test_percent_and_interval():
    assert plain(percent(48.23)) == "+48.2 %"
    assert plain(percent(-3.0)) == "−3.0 %"
    assert plain(percent(2310.0)) == "+2,310 %"
    assert percent(None) == percent(float("nan")) == "–"
    assert plain(interval(8.0, 13.0)) == "95 % +8.0 to +13.0 %"
    assert plain(interval(-1.0, 2.0)) == "within noise: 95 % −1.0 to +2.0 %"
    assert interval(None, None) == interval(float("nan"), float("nan")) == "no interval"


def test_estimate_is_a_mean_with_half_its_interval():
    assert plain(estimate(1204.4, 1192.4, 1216.4)) == "1,204 ± 12"
    assert plain(estimate(4.876, 4.803, 4.949)) == "4.88 ± 0.07"
    assert plain(estimate(1204.4, 1204.1, 1204.7)) == "1,204 ± 0.3"
    assert plain(estimate(5.0, 5.0, 5.0)) == "5.00 ± 0.00"
    assert estimate(81.25, None, None) == estimate(81.25, float("nan"), float("nan")) == "81.2"
    assert estimate(None, 1.0, 2.0) == "–"


def test_noise_is_an_interval_that_includes_zero():
    assert is_noise(-0.1, 3.0) and is_noise(0.0, 3.0)
    assert not is_noise(0.1, 3.0) and not is_noise(-3.0, -0.1) and not is_noise(None, None)


def test_durations_and_labels():
    assert [duration(value) for value in (0.41, 75.0, 720.0, 11520.0, None)] == [
        "0.4 s",
        "75 s",
        "12 min",
        "3.2 h",
        "–",
    ]
    assert metric_label("total_tokens_per_s", "accelerator") == "Total tokens/s per accelerator"
    assert metric_label("ttft_ms") == "TTFT (ms)"
    assert metric_label("success_rate") == "Success rate"

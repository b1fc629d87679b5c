"""The report page in a browser: no complaint, no request, and everything that can be done with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lfopt.app.report.summary import page_of
from tests.app.browser import Browser, chromium
from tests.app.pages import hostile_model, page_inputs

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium at hand (Debian: apt-get install chromium)"
)

SCREENS = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844, "phone": True}}


@pytest.fixture(scope="module")
def browser():
    running = Browser(str(chromium()))
    yield running
    running.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    plan = page_inputs("zoo:mobilenet_v2", 128 * 1024, folder)
    (folder / "report.html").write_text(page_of(plan.plan, plan.graph, 0.5))
    return folder / "report.html"


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    return browser


def transform(browser: Browser) -> str:
    return browser.run("document.querySelector('#graph > g').getAttribute('transform')")


def selected(browser: Browser) -> dict[str, str]:
    """What each part of the page says is selected."""
    return {
        "panel": browser.run("document.querySelector('#inspector h3').textContent.match(/Group (\\d+)/)[1]"),
        "inside": browser.run("document.querySelector('#inside-title').textContent.match(/(\\d+)/)[1]"),
        "table": browser.run("document.querySelector('#groups tr.chosen .chip').textContent"),
        "drawing": browser.run(
            "document.querySelector('.node.chosen') && "
            "String(D0[document.querySelector('.node.chosen').dataset.node])"
        ),
    }


@pytest.fixture(autouse=True)
def groups_of_nodes(browser):
    """`D0`: group of each node, read from the page's own data whenever it is asked for."""
    source = """Object.defineProperty(window, "D0", { configurable: true, get() {
        const data = JSON.parse(document.getElementById("data").textContent);
        const inputs = Array(data.inputs).fill(-1), sinks = Array(data.sinks.length).fill(-1);
        return [...inputs, ...data.ops.group, ...sinks]; } })"""
    added = browser.call("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
    yield
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_is_complained_about_asked_for_or_overflows(browser, page, screen, dark):
    browser.open(page, dark=dark, **SCREENS[screen])
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.run("document.querySelectorAll('.node').length") > 99


def test_a_click_on_an_operator_selects_its_group_everywhere(opened):
    opened.run("document.getElementById('network').scrollIntoView({behavior: 'instant'})")
    for node in (3, 40, 90):
        box = f"document.querySelector('.node[data-node=\"{node}\"] rect').getBoundingClientRect()"
        opened.click(*opened.run(f"[{box}.x + {box}.width / 2, {box}.y + {box}.height / 2]"))
        group = str(opened.run(f"D0[{node}]"))
        assert selected(opened) == dict.fromkeys(("panel", "inside", "table", "drawing"), group)


def test_operators_are_coloured_by_bytes_until_another_heat_is_asked_for(opened):
    def hottest() -> str:
        return opened.run(
            "[...document.querySelectorAll('.node rect')].reduce((a, b) => (share(a) >= share(b) ? a : "
            "b)).parentNode.dataset.node"
        )

    opened.run("window.share = (rect) => parseFloat(rect.style.fill.match(/([0-9.]+)%/)?.[1] ?? -1)")
    pressed = "document.querySelector('#heat [aria-pressed=true]').textContent"
    data = json.loads(opened.run("document.getElementById('data').textContent"))
    assert opened.run(pressed) == "bytes"
    for k, name in enumerate(("bytes", "cycles", "fill")):
        opened.run(f"document.querySelectorAll('#heat button')[{k}].click()")
        assert opened.run(pressed) == name
        values = data["heat"][name]
        assert values[int(hottest()) - data["inputs"]] == max(values)
    opened.run("document.querySelectorAll('#heat button')[3].click()")
    assert not opened.run("document.querySelector('.node rect').style.fill")


def test_a_narrow_page_keeps_its_navigation(browser, page):
    browser.open(page, width=500)
    links = browser.run(
        "[...document.querySelectorAll('.bar nav a')]"
        ".map((a) => [a.hash, a.getBoundingClientRect().width > 0])"
    )
    assert len(links) >= 5 and all(
        shown and browser.run(f"!!document.querySelector('{anchor}')") for anchor, shown in links
    )
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_hovering_over_an_operator_says_what_it_is(opened):
    opened.run("document.getElementById('network').scrollIntoView({behavior: 'instant'})")
    # scrolling hides what is shown
    opened.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box = "document.querySelector('.node[data-node=\"1\"] rect').getBoundingClientRect()"
    opened.mouse("mouseMoved", *opened.run(f"[{box}.x + 3, {box}.y + 3]"))
    opened.wait("!document.getElementById('tip').hidden")
    text = opened.run("document.getElementById('tip').textContent")
    assert "Conv" in text
    assert "1\u00d732\u00d7112\u00d7112" in text
    assert "802,816" in text  # bytes of that map


def test_an_operator_is_found_by_name_and_its_group_selected(opened):
    opened.run("document.getElementById('find').focus()")
    opened.write("stage5.block2 depthwise")
    opened.wait("document.querySelectorAll('#found [role=option]').length > 0")
    name = opened.run("document.querySelector('#found [aria-selected=true] .mono').textContent")
    assert "stage5.block2" in name
    opened.key("Enter")
    node = opened.run("Number(document.querySelector('.node.focused').dataset.node)")
    assert set(selected(opened).values()) == {str(opened.run(f"D0[{node}]"))}
    assert opened.run("document.getElementById('found').hidden")


def test_the_drawing_is_zoomed_and_moved_by_wheel_drag_keys_and_buttons(opened):
    opened.run("document.getElementById('network').scrollIntoView({behavior: 'instant'})")
    seen = [transform(opened)]

    def changed() -> bool:
        seen.append(transform(opened))
        return seen[-1] != seen[-2]

    x, y = opened.run(
        "(() => { const b = document.getElementById('graph').getBoundingClientRect(); return [b.x + b.width "
        "/ 2, b.y + b.height / 2]; })()"
    )
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    assert not changed()  # the page scrolls until the drawing is used
    opened.run(
        "document.getElementById('network').scrollIntoView({behavior: 'instant'}); "
        "document.getElementById('graph').focus({preventScroll: true})"
    )
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    opened.wait(f"document.querySelector('#graph > g').getAttribute('transform') !== {seen[0]!r}")
    assert changed()
    opened.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    opened.mouse("mouseMoved", x + 60, y + 30, button="left", buttons=1)
    opened.mouse("mouseReleased", x + 60, y + 30, button="left", clickCount=1)
    assert changed()
    for key in ("+", "-", "0"):
        opened.key(key)
        assert changed(), key
    for button in ("zoom-in", "zoom-out", "zoom-group", "zoom-fit"):
        opened.run(f"document.getElementById('{button}').click()")
        assert changed(), button


def test_arrow_keys_walk_along_operators_and_enter_selects(opened):
    opened.run("document.getElementById('graph').focus()")
    walked = []
    for _ in range(4):
        opened.key("ArrowRight")
        walked.append(opened.run("Number(document.querySelector('.node.focused').dataset.node)"))
    assert walked == sorted(set(walked))
    opened.key("Enter")
    assert set(selected(opened).values()) == {str(opened.run(f"D0[{walked[-1]}]"))}
    assert "bytes" in opened.run("document.getElementById('said').textContent") or "result" in opened.run(
        "document.getElementById('said').textContent"
    )


def test_two_fingers_zoom_the_drawing(browser, page):
    browser.open(page, **SCREENS["phone"])
    browser.run("document.querySelector('.graph').scrollIntoView({behavior: 'instant', block: 'center'})")
    before = transform(browser)
    x, y = browser.run(
        "(() => { const b = document.getElementById('graph').getBoundingClientRect(); return [b.x + b.width "
        "/ 2, b.y + b.height / 2]; })()"
    )

    def touch(kind: str, apart: float) -> None:
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}] if apart else []
        browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    touch("touchStart", 20)
    for apart in (30, 50, 80):
        touch("touchMove", apart)
    touch("touchEnd", 0)
    scales = [float(text.split("scale(")[1].rstrip(")")) for text in (before, transform(browser))]
    assert scales[1] > 2 * scales[0]


def test_the_table_is_sorted_by_any_column(opened):
    def column(index: int) -> list[int]:
        cells = opened.run(
            "[...document.querySelectorAll('#groups tbody tr')].map((row) => "
            f"row.children[{index}].textContent)"
        )
        return [int(text.replace(",", "")) for text in cells]

    heads = opened.run("[...document.querySelectorAll('#groups th')].map((head) => head.textContent)")
    for name in ("group", "DRAM bytes", "unfused"):
        index = heads.index(name)
        press = f"document.querySelectorAll('#groups th button')[{index}].click()"
        opened.run(press)
        first = column(index)
        opened.run(press)
        assert sorted((first, column(index))) == sorted((sorted(first), sorted(first, reverse=True)))
    assert opened.run("document.querySelectorAll('#groups th[aria-sort]').length") == 1


def test_cuts_are_filtered_by_what_they_would_do(opened):
    total = opened.run("document.querySelectorAll('.cut').length")
    buttons = opened.run(
        "[...document.querySelectorAll('#cut-filters button')].map((button) => button.textContent)"
    )
    index = next(k for k, text in enumerate(buttons) if text.startswith("overflows"))
    opened.run(f"document.querySelectorAll('#cut-filters button')[{index}].click()")
    shown = opened.run("[...document.querySelectorAll('.cut .verdict')].map((cell) => cell.textContent)")
    assert set(shown) == {"overflows"}
    assert 0 < len(shown) <= total
    assert len(shown) == int(buttons[index].split()[-1])


def test_the_theme_is_turned_by_its_button_and_kept(opened, page):
    before = opened.run("getComputedStyle(document.body).backgroundColor")
    opened.run("document.getElementById('theme').click()")
    assert opened.run("getComputedStyle(document.body).backgroundColor") != before
    opened.open(page)
    assert opened.run("document.documentElement.dataset.theme") == "dark"
    opened.run("document.getElementById('theme').click(); localStorage.clear()")


def test_every_group_can_be_selected_without_a_complaint(opened):
    count = opened.run("document.querySelectorAll('#groups tbody tr').length")
    for k in range(count):
        opened.run(f"document.querySelectorAll('#groups tbody tr')[{k}].click()")
        assert opened.run("document.querySelector('#fill').children.length") > 0
        assert "undefined" not in opened.run("document.querySelector('main').innerText")
        assert "NaN" not in opened.run("document.querySelector('main').innerHTML")
    assert opened.complaints() == []


def test_hostile_names_do_nothing_but_stand_there(browser, tmp_path):
    hostile_model(tmp_path / "h.onnx")
    plan = page_inputs(str(tmp_path / "h.onnx"), 64 * 1024, tmp_path / "plan")
    (tmp_path / "report.html").write_text(page_of(plan.plan, plan.graph, 0))
    browser.open(tmp_path / "report.html")
    browser.run("document.getElementById('find').focus()")
    browser.write("onerror")
    browser.wait("document.querySelectorAll('#found [role=option]').length > 0")
    browser.key("Enter")
    assert "onerror" in browser.run(
        "document.querySelector('.list').textContent + document.getElementById('tip').textContent"
    )
    assert browser.run("document.images.length") == 0
    assert browser.run("window.hacked") is None
    assert browser.complaints() == []
    assert browser.requests() == [(tmp_path / "report.html").resolve().as_uri()]


# -- pictures of what does not fit ---------------------------------------------------------------------------

PICTURES = "JSON.parse(document.getElementById('data').textContent).pictures"


def shown_pair(browser: Browser) -> list[int]:
    return browser.run("document.querySelector('#grown-title').textContent.match(/\\d+/g).map(Number)")


def test_the_selected_group_is_drawn_with_a_neighbour_that_does_not_fit(opened):
    assert int(selected(opened)["panel"]) in shown_pair(opened)
    picture = (
        f"{PICTURES}.find((p) => String(D1.cuts[p.cut].pair) === '{','.join(map(str, shown_pair(opened)))}')"
    )
    opened.run(
        "void Object.defineProperty(window, 'D1', { value: "
        "JSON.parse(document.getElementById('data').textContent) })"
    )
    assert (
        opened.run("document.querySelectorAll('#grown figure').length")
        == opened.run(f"Object.keys({picture}.by).length")
        > 0
    )
    assert opened.run("document.querySelectorAll('#grown figure:first-child .node').length") == opened.run(
        f"{picture}.ops.length"
    )
    assert opened.run("document.querySelectorAll('#grown figure:first-child .link').length") == opened.run(
        f"{picture}.links.length / 2"
    )
    cut = (
        f"{picture}.routes.filter((_, k) => {picture}.best.parts[{picture}.links[2 * k]] !== "
        f"{picture}.best.parts[{picture}.links[2 * k + 1]]).length"
    )
    assert (
        opened.run("document.querySelectorAll('#grown figure:first-child .drawn .tick').length")
        == opened.run(cut)
        > 0
    )


def test_another_pair_is_drawn_by_its_tab_its_row_and_its_group(opened):
    before = shown_pair(opened)
    opened.run("document.querySelector('#grown-tabs [aria-pressed=false]').click()")
    assert shown_pair(opened) != before
    opened.run("document.querySelector('#cut-list button.picture').click()")
    pair = opened.run(
        "[...document.querySelector('#cut-list "
        "button.picture').closest('.cut').querySelectorAll('.chip')].map((c) => Number(c.textContent))"
    )
    assert shown_pair(opened) == pair
    other = opened.run(
        f"Math.max(...{PICTURES}.map((p) => "
        "JSON.parse(document.getElementById('data').textContent).cuts[p.cut].pair[1]))"
    )
    opened.run(
        f"[...document.querySelectorAll('#groups .chip')].find((c) => c.textContent === '{other}').click()"
    )
    assert other in shown_pair(opened)
    assert opened.complaints() == []


def test_hovering_over_a_link_says_its_score(opened):
    opened.run("document.getElementById('grown').scrollIntoView({behavior: 'instant'})")
    opened.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box = "document.querySelector('#grown .ring').getBoundingClientRect()"
    opened.mouse("mouseMoved", *opened.run(f"[{box}.x + {box}.width / 2, {box}.y + {box}.height / 2]"))
    opened.wait("!document.getElementById('tip').hidden")
    text = opened.run("document.getElementById('tip').textContent")
    assert "rank" in text
    assert "cheapest cut" in text or "SPLIT" in text


def test_a_buffer_without_a_limit_is_called_so_and_nothing_is_a_share_of_it(browser, tmp_path):
    plan = page_inputs("zoo:squeezenet1_1", 1 << 40, tmp_path)
    (tmp_path / "report.html").write_text(page_of(plan.plan, plan.graph, 0.5, explain_seconds=0))
    browser.open(tmp_path / "report.html")
    assert browser.complaints() == []
    said = browser.run("document.body.textContent.replace(document.getElementById('data').textContent, '')")
    shown = browser.run(
        "document.body.innerText + [...document.querySelectorAll('svg text')].map((text) => "
        "text.textContent).join(' ')"
    )
    assert "unlimited" in browser.run("document.getElementById('stairs').textContent")
    assert "buffer unlimited" in browser.run("document.getElementById('fill').textContent")
    assert not any(word in shown for word in ("NaN", "Infinity", "∞", "undefined", "null", "1,099,511"))
    assert "1099511" not in said

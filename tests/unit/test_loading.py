"""`MODULE:APP`: what is imported, and what is said of a module that cannot be."""

import sys

import pytest

from streamkit.cli.loading import AppNotLoaded, load_app

APP = "from streamkit import App\n\napp = App({name!r}, table='T')\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write modules into the current directory; they are forgotten after the test."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def refused(name):
    with pytest.raises(AppNotLoaded) as caught:
        load_app(name)
    return str(caught.value)


@pytest.mark.parametrize("name", ["no_such_shop", "no_such_shop.apps", "no_such_shop.apps.main"])
def test_a_module_that_is_not_there_is_told_apart_from_one_that_it_imports(write, name):
    assert "there is no module 'no_such_shop' in " in refused(f"{name}:app")
    write("shop_orders.py", "import orders\n")
    said = refused("shop_orders:app")
    assert said.startswith("error: shop_orders raised while it was imported\n")
    assert said.endswith("No module named 'orders'")


def test_the_current_directory_comes_before_the_rest_of_the_import_path(write, tmp_path):
    write("elsewhere/twofold.py", APP.format(name="elsewhere"))
    write("twofold.py", APP.format(name="here"))
    sys.path.insert(0, str(tmp_path / "elsewhere"))
    assert load_app("twofold:app").name == "here"


def test_a_listener_is_found_by_its_name_though_apps_have_such_an_attribute(write):
    write("named.py", f"{APP.format(name='shop')}search = app.listener('table')\n")
    assert load_app("named:app.table").name == "shop.table"
    assert load_app("named").name == "shop"


def test_the_lines_of_streamkit_are_left_out_only_where_it_refuses_a_value(write):
    begin = "from streamkit.model.codec import encode_key\n\nencode_key(None, 'B')\n"
    write("broken.py", begin)
    assert "codec.py" in refused("broken")
    write("wrong.py", "from streamkit import Policy\n\nPolicy(attempts='many')\n")
    said = refused("wrong")
    assert "wrong.py" in said
    assert "streamkit/" not in said

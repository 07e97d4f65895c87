"""Docstrings name what is there: parameters in order, fitted attributes, examples."""

import ast
import inspect
import re

import pytest

import skbert

ESTIMATORS = [name for name in skbert.__all__ if name[0].isupper()]


def section(docstring, title):
    """Names that open the entries of a numpydoc section."""
    body = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.S | re.M)
    return re.findall(r"^(\w+) : ", body.group(1), re.M) if body else []


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_are_documented_in_order(name):
    estimator = getattr(skbert, name)
    wanted = list(inspect.signature(estimator.__init__).parameters)[1:]
    assert section(inspect.getdoc(estimator), "Parameters") == wanted


@pytest.mark.parametrize("name", ESTIMATORS)
def test_defaults_are_stated(name):
    estimator = getattr(skbert, name)
    docstring = inspect.getdoc(estimator)
    for parameter in list(inspect.signature(estimator.__init__).parameters.values())[1:]:
        if parameter.default is parameter.empty:
            continue
        stated = re.search(rf"^{parameter.name} : .*default=(.+)$", docstring, re.M)
        default = parameter.default
        assert stated, parameter.name
        assert ast.literal_eval(stated.group(1)) == default


def test_fitted_attributes_are_documented(bert_folder):
    frame = pytest.importorskip("pandas").DataFrame({"text": ["one", "two"]})
    vectorizer = skbert.BertVectorizer(bert_folder).fit(frame)
    fitted = {name for name in vars(vectorizer) if name.endswith("_")}
    assert set(section(inspect.getdoc(vectorizer), "Attributes")) == fitted


@pytest.mark.parametrize("name", ESTIMATORS)
def test_public_methods_have_docstrings(name):
    estimator = getattr(skbert, name)
    own = [
        method
        for method, value in inspect.getmembers(estimator, inspect.isfunction)
        if not method.startswith("_") and value.__module__.startswith("skbert.")
    ]
    for method in own:
        docstring = inspect.getdoc(getattr(estimator, method))
        assert docstring, method
        parameters = list(inspect.signature(getattr(estimator, method)).parameters)[1:]
        assert section(docstring, "Parameters") == parameters, method
    assert "Examples\n" in inspect.getdoc(estimator)

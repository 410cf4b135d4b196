"""What libraries log stays out of a caller's terminal, unless the caller asks for it."""

import logging

import pytest

from convertkit.quiet import quiet_libraries

LOGGER = "onnxscript.optimizer"


@pytest.mark.parametrize(("verbose", "told"), [(False, []), (True, ["left out"])])
def test_libraries_are_quiet_while_an_export_runs(caplog, verbose, told):
    with quiet_libraries(verbose=verbose):
        logging.getLogger(LOGGER).warning("left out")
    assert [record.message for record in caplog.records] == told
    logging.getLogger(LOGGER).warning("after it")
    assert caplog.records[-1].message == "after it"


def test_a_level_that_the_caller_chose_stays(caplog):
    logger = logging.getLogger("onnxscript")
    logger.setLevel(logging.WARNING)
    try:
        with quiet_libraries(verbose=False):
            logging.getLogger(LOGGER).warning("wanted")
        assert logger.level == logging.WARNING
        assert [record.message for record in caplog.records] == ["wanted"]
    finally:
        logger.setLevel(logging.NOTSET)

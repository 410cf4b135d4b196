"""What libraries log stays out of a caller's terminal, unless the caller asks for it."""

import logging
import os
import threading

import pytest

from convertkit.quiet import native_stderr_silent, quiet_libraries, visible_stderr

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


def test_what_must_be_seen_waits_for_the_end_of_silence(capfd):
    silent, go_on = threading.Event(), threading.Event()

    def load():
        with native_stderr_silent():
            silent.set()
            assert go_on.wait(20)
            os.write(2, b"INFO: created a delegate\n")

    loading = threading.Thread(target=load)
    loading.start()
    assert silent.wait(20)
    threading.Timer(0.2, go_on.set).start()
    with visible_stderr():
        os.write(2, b"ok  tflite\n")
    loading.join()
    assert capfd.readouterr().err == "ok  tflite\n"

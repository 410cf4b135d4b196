"""Zephyr and ESP-IDF as far as a skeleton's CMake files speak of them: their words become programs of this machine.

Sources of the words: Zephyr Project, "Application Development" and "Modules"; ESP-IDF, "Build System".
"""

from __future__ import annotations

from pathlib import Path

_ZEPHYR = """project(Zephyr C CXX)
include_directories({stubs})
add_executable(app {stubs}/stub.cc)
target_include_directories(app PRIVATE ${{CMAKE_CURRENT_SOURCE_DIR}})
function(zephyr_include_directories)
  include_directories(${{ARGN}})
endfunction()
function(zephyr_library_named name)
  add_library(${{name}} STATIC)
  set(ZEPHYR_CURRENT_LIBRARY ${{name}} PARENT_SCOPE)
endfunction()
function(zephyr_library_sources)
  target_sources(${{ZEPHYR_CURRENT_LIBRARY}} PRIVATE ${{ARGN}})
endfunction()
add_subdirectory(${{CMAKE_CURRENT_SOURCE_DIR}}/zephyr module)
"""
_ESP_IDF = """function(idf_component_register)
  cmake_parse_arguments(GIVEN "" "" "SRCS;INCLUDE_DIRS" ${{ARGN}})
  if(GIVEN_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "idf_component_register: ${{GIVEN_UNPARSED_ARGUMENTS}}")
  endif()
  add_library(component STATIC ${{GIVEN_SRCS}})
  target_include_directories(component PUBLIC ${{GIVEN_INCLUDE_DIRS}} {stubs})
  set(COMPONENT_LIB component PARENT_SCOPE)
endfunction()
macro(project name)
  _project(${{name}} C CXX)
  add_subdirectory(src)
  add_executable(app {started} {stubs}/stub.cc)
  target_link_libraries(app component)
endmacro()
"""
_STARTED = 'extern "C" void app_main();\nint main() { app_main(); }\n'


def frameworks(folder: Path, stubs: Path) -> dict[str, str]:
    """Where the CMake files look for their frameworks, as variables of the environment; ``stubs`` are headers."""
    zephyr, idf = folder / "zephyr", folder / "idf"
    (idf / "tools" / "cmake").mkdir(parents=True)
    zephyr.mkdir()
    (zephyr / "ZephyrConfig.cmake").write_text(_ZEPHYR.format(stubs=stubs))
    started = folder / "started.cc"
    started.write_text(_STARTED)
    (idf / "tools" / "cmake" / "project.cmake").write_text(_ESP_IDF.format(stubs=stubs, started=started))
    return {"ZEPHYR_BASE": str(zephyr), "IDF_PATH": str(idf)}

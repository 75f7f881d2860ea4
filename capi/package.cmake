# Packages, by `cpack` in a build directory: libsymm0, libsymm-dev, symm-tools and, where MPI was
# found, symm-tools-mpi as .deb; everything in one .tar.gz that may be unpacked anywhere.
set(SYMM_PACKAGE_CONTACT "symm developers <symm@localhost>" CACHE STRING "Maintainer in packages")

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME symm)
set(CPACK_PACKAGE_VENDOR symm)
set(CPACK_PACKAGE_CONTACT "${SYMM_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME symm-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/capi/package_modes.cmake)

set(runtime_package libsymm${PROJECT_VERSION_MAJOR})
set(development_package libsymm-dev)
set(tools_package symm-tools)
set(tools_mpi_package symm-tools-mpi)

set(CPACK_COMPONENTS_ALL runtime development)
if(SYMM_BUILD_EXAMPLES)
  list(APPEND CPACK_COMPONENTS_ALL tools)
  if(TARGET symm-perf-mpi)
    list(APPEND CPACK_COMPONENTS_ALL tools_mpi)
  endif()
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Which libc and which libstdc++ are needed is dpkg-shlibdeps' finding; that symm's own packages
# belong together is said by their components.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS runtime)
set(CPACK_COMPONENT_TOOLS_DEPENDS runtime)
set(CPACK_COMPONENT_TOOLS_MPI_DEPENDS tools)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
    "Every rank of a job opens the same window of memory, every rank sees every
other rank's copy, and a one-shot all-reduce runs over them. This package has
what programs need to run.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "This package has the header symm.h, the library to link with (shared and
static), and what pkg-config and CMake's find_package need.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION
    "symm-doctor says what of symm works on a machine and what to do about the
rest; symm-perf measures it.")

set(CPACK_DEBIAN_TOOLS_MPI_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_MPI_DESCRIPTION
    "With this package symm-perf also measures MPI_Allreduce.")

# Debian keeps a licence and a changelog for every package, and has the loader's cache renewed by a
# trigger. None of this is part of an installation by hand.
set(debian ${PROJECT_BINARY_DIR}/debian)
string(TIMESTAMP symm_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${debian}/changelog
     "symm (${PROJECT_VERSION}) unstable; urgency=medium\n\n"
     "  * symm ${PROJECT_VERSION}: its CHANGELOG.md says what is new.\n\n"
     " -- ${SYMM_PACKAGE_CONTACT}  ${symm_date}\n")
file(WRITE ${debian}/copyright
     "symm ${PROJECT_VERSION}. Copyright (C) 2026 the symm developers.\n\n"
     "Licensed under the Apache License, Version 2.0, whose text is in\n"
     "/usr/share/common-licenses/Apache-2.0 on Debian systems.\n")
file(WRITE ${debian}/triggers "activate-noawait ldconfig\n")
file(CHMOD ${debian}/triggers PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
# Without the time of the build in it, where gzip is.
execute_process(COMMAND gzip -9nf ${debian}/changelog RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0)
  file(ARCHIVE_CREATE OUTPUT ${debian}/changelog.gz PATHS ${debian}/changelog
       FORMAT raw COMPRESSION GZip)
endif()
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${${component}_package})
  install(FILES ${debian}/changelog.gz ${debian}/copyright
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${${component}_package}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

include(CPack)

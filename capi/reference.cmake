# The target symm_reference: symm.h as HTML, in reference/ of the build directory.
find_program(SYMM_DOXYGEN doxygen)
if(SYMM_DOXYGEN)
  set(symm_reference_dir ${PROJECT_BINARY_DIR}/reference)
  configure_file(capi/Doxyfile.in Doxyfile @ONLY)
  add_custom_command(
    OUTPUT ${symm_reference_dir}/symm_8h.html
    COMMAND ${CMAKE_COMMAND} -E make_directory ${symm_reference_dir}
    COMMAND ${SYMM_DOXYGEN} ${PROJECT_BINARY_DIR}/Doxyfile
    DEPENDS ${PROJECT_BINARY_DIR}/Doxyfile capi/symm.h capi/reference.awk)
  add_custom_target(symm_reference DEPENDS ${symm_reference_dir}/symm_8h.html)
endif()

# Installs the header, both libraries and what pkg-config and find_package need. Components are the
# packages of capi/package.cmake: runtime, development, tools, tools_mpi; documentation comes with
# an installation of everything.
set(symm_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/symm)

install(FILES capi/symm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
install(TARGETS symm symm_static EXPORT symmTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
                NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT symmTargets NAMESPACE symm:: DESTINATION ${symm_cmake_dir} COMPONENT development)

configure_package_config_file(capi/symmConfig.cmake.in symmConfig.cmake
                              INSTALL_DESTINATION ${symm_cmake_dir})
write_basic_package_version_file(symmConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/symmConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/symmConfigVersion.cmake
        DESTINATION ${symm_cmake_dir} COMPONENT development)

# The prefix is found from where symm.pc lies, so that an installed tree can be moved; with an
# absolute library directory there is no such way.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(symm_pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(symm_pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(symm_pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH symm_pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" symm_pc_up "${symm_pc_up}")
  set(symm_pc_prefix "\${pcfiledir}/${symm_pc_up}")
  set(symm_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(symm_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(capi/symm.pc.in symm.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/symm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

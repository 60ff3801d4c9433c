# SPDX-License-Identifier: MIT
# What `cmake --install` puts where. Components: planner (headers and library of the planner, for find_package), program
# (all else). The tree can be moved: the program finds its libraries beside itself. Those of the system, MPI and
# HDF5 first of all, stay the system's.
include(CMakePackageConfigHelpers)
include(GaronneCudaLibraries)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)

# --- the planner as a library ------------------------------------------------------------------
set(garonne_package "${CMAKE_INSTALL_LIBDIR}/cmake/Garonne")
set_target_properties(garonne_base PROPERTIES EXPORT_NAME base)
set_target_properties(garonne_plan PROPERTIES EXPORT_NAME plan)
set_target_properties(garonne_warnings PROPERTIES EXPORT_NAME warnings)
install(TARGETS garonne_base garonne_plan garonne_warnings EXPORT GaronneTargets COMPONENT planner
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT GaronneTargets NAMESPACE garonne:: DESTINATION "${garonne_package}" COMPONENT planner)
foreach(room base plan)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/${room}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/garonne"
    COMPONENT planner FILES_MATCHING PATTERN "*.hpp")
endforeach()
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/GaronneConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/GaronneConfig.cmake" INSTALL_DESTINATION "${garonne_package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/GaronneConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/GaronneConfig.cmake" "${PROJECT_BINARY_DIR}/GaronneConfigVersion.cmake"
  DESTINATION "${garonne_package}" COMPONENT planner)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/" DESTINATION "${CMAKE_INSTALL_DATADIR}/garonne/examples" COMPONENT planner)

# The mixed-integer solver is a private copy as a rule.
if(GARONNE_HAVE_HIGHS)
  install(FILES "${GARONNE_HIGHS_LIBRARY}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/garonne" COMPONENT planner)
endif()

# --- the program -------------------------------------------------------------------------------
if(TARGET garonne)
  # Folders of libraries that stay where they are and that no loader looks into by itself.
  set(garonne_foreign "")
  foreach(library IN LISTS HDF5_C_LIBRARIES HDF5_LIBRARIES MPI_C_LIBRARIES)
    if(IS_ABSOLUTE "${library}")
      cmake_path(GET library PARENT_PATH folder)
      list(APPEND garonne_foreign "${folder}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES garonne_foreign)
  set_target_properties(garonne garonne-hdf5-reader PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/garonne;${garonne_foreign}")
  install(TARGETS garonne garonne-hdf5-reader RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  # Those that were fetched; of torch the ones that the program needs, and what these need.
  foreach(name torch_cpu c10 torch_cuda c10_cuda gomp)
    if(TARGET garonne_${name})
      install(FILES "$<TARGET_FILE:garonne_${name}>" DESTINATION "${CMAKE_INSTALL_LIBDIR}/garonne")
    endif()
  endforeach()
  if(GARONNE_HAVE_HIGHS)
    install(FILES "${GARONNE_HIGHS_LIBRARY}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/garonne")
  endif()
  if(GARONNE_OPENBLAS_LIBRARY)
    install(FILES "${GARONNE_OPENBLAS_LIBRARY}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/garonne")
  endif()
  if(GARONNE_WITH_CUDA)
    garonne_cuda_libraries(garonne_of_cuda)
  else()
    file(GLOB garonne_of_cuda "${GARONNE_WHEELS}/nvidia/cu13/lib/libcudart.so.*"
      "${GARONNE_WHEELS}/nvidia/cu13/lib/libcupti.so.*")
  endif()
  if(garonne_of_cuda)
    install(FILES ${garonne_of_cuda} DESTINATION "${CMAKE_INSTALL_LIBDIR}/garonne")
  endif()
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    # From what --help says.
    install(CODE "
      set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
      execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/scripts/make-manual\"
        \"\${prefix}/${CMAKE_INSTALL_BINDIR}/garonne\" \"\${prefix}/${CMAKE_INSTALL_DATADIR}\"
        COMMAND_ERROR_IS_FATAL ANY)")
  endif()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/config" "${PROJECT_SOURCE_DIR}/python" "${PROJECT_SOURCE_DIR}/slurm" "${PROJECT_SOURCE_DIR}/tests/truth"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/garonne" PATTERN "__pycache__" EXCLUDE)
  install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${PROJECT_SOURCE_DIR}/LICENSE"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endif()

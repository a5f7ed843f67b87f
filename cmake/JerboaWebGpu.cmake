# Whether the WebGPU backend is built. It needs Dawn's header, which comes with the library in the npm package of
# src/backend/webgpu/package.json (./dev setup installs it); the library itself is opened at run time, so that programs
# run without it.
set(JERBOA_WEBGPU AUTO CACHE STRING "Build the WebGPU backend: ON, OFF, or AUTO, which is ON if webgpu.h is found")
set_property(CACHE JERBOA_WEBGPU PROPERTY STRINGS AUTO ON OFF)
set(JERBOA_DAWN ${PROJECT_SOURCE_DIR}/src/backend/webgpu/node_modules/@wgpu-bun/linux-x64-dawn)

if(JERBOA_WEBGPU)
  find_path(JERBOA_WEBGPU_INCLUDE webgpu.h PATHS ${JERBOA_DAWN}/include-dawn NO_DEFAULT_PATH)
  if(NOT JERBOA_WEBGPU_INCLUDE)
    if(NOT JERBOA_WEBGPU STREQUAL AUTO)
      message(FATAL_ERROR "webgpu.h is missing: run ./dev setup, or npm ci in src/backend/webgpu, or set "
        "JERBOA_WEBGPU_INCLUDE to the folder of Dawn's webgpu.h, or JERBOA_WEBGPU to OFF")
    endif()
    message(STATUS "Building without WebGPU: webgpu.h not found (npm ci in src/backend/webgpu installs it)")
    set(JERBOA_WEBGPU OFF)
  else()
    set(JERBOA_WEBGPU ON)
  endif()
endif()

# Programs look for the library next to themselves, so that no path of the source tree is compiled in.
if(JERBOA_WEBGPU AND EXISTS ${JERBOA_DAWN}/lib/libwebgpu_dawn.so)
  file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  file(CREATE_LINK ${JERBOA_DAWN}/lib/libwebgpu_dawn.so ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libwebgpu_dawn.so SYMBOLIC)
endif()

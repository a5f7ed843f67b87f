// Generated from src/wgsl/webgpu_target.cpp: cmake --build --preset release --target docs

/** What software drivers call themselves, in lower case. */
export const softwareDriverNames: readonly string[] = ["llvmpipe", "lavapipe", "swiftshader", "basic render driver"];

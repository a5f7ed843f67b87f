// One class per kind of error, as in the C++ library. A message names the object, the place and, where there is one,
// the remedy.

export class JerboaError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Sizes that do not match, or a symbol without a value. */
export class ShapeError extends JerboaError {}

/** A graph that cannot be built, differentiated or compiled. */
export class GraphError extends JerboaError {}

/** A call that is wrong whatever the data: an unknown name, a missing input. */
export class UsageError extends JerboaError {}

/** A tensor that holds NaN or infinity, found by a finite check. */
export class NotFiniteError extends JerboaError {}

/** A program or a safetensors file that is damaged, or of another version. */
export class FileError extends JerboaError {}

/** A server that is unreachable or temporarily unavailable. */
export class NetworkError extends JerboaError {}

/** A missing device, or a call that it fails. */
export class DeviceError extends JerboaError {}

/** The device lacks features or limits that the program needs. */
export class UnsupportedError extends DeviceError {
  constructor(
    message: string,
    readonly missing: readonly string[],
  ) {
    super(message);
  }
}

/** The device is lost. Open another one and create a new session on it. */
export class DeviceLostError extends DeviceError {
  constructor(
    message: string,
    readonly reason: string,
  ) {
    super(message);
  }
}

/** The device does not have enough memory for a tensor. */
export class OutOfMemoryError extends DeviceError {}

/** A kernel that the device's compiler rejects. */
export class ShaderError extends DeviceError {
  constructor(
    message: string,
    readonly kernel: string,
    /** Line in `source`, from 1; 0 if the compiler reports none. */
    readonly line: number,
    readonly source: string,
  ) {
    super(message);
  }
}

/** "a, b and 3 more", or "none": for errors that list known names. */
export function listed(names: Iterable<string>): string {
  const all = [...names];
  const most = 12;
  if (all.length === 0) return "none";
  const shown = all.slice(0, most).join(", ");
  return all.length > most ? `${shown} and ${all.length - most} more` : shown;
}

// Values that a page stores in the browser, as JSON.

/** The value under a key, or `otherwise` if there is none. */
export function stored(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`jerboa.${key}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Stores a value; returns false if there is no room. */
export function store(key, value) {
  try {
    localStorage.setItem(`jerboa.${key}`, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

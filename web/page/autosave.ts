// The training as it was last saved, in the browser's database: it survives a reload and the loss of the device.

/** A text that the model wrote after some step. */
export interface Sample {
  readonly step: number;
  readonly loss: number;
  readonly prompt: string;
  readonly text: string;
}

export interface SavedRun {
  /** Which model the checkpoint is of. */
  readonly model: string;
  readonly textName: string;
  readonly text: Uint8Array<ArrayBuffer>;
  readonly losses: readonly number[];
  readonly samples: readonly Sample[];
  readonly checkpoint: Uint8Array<ArrayBuffer>;
  /** Milliseconds since 1970. */
  readonly savedAt: number;
}

const databaseName = "jerboa-train";
const storeName = "runs";
const key = "current";

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(databaseName, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(storeName);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser's database cannot be opened"));
  });
}

async function transact<T>(mode: IDBTransactionMode, body: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const database = await open();
  try {
    return await new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(storeName, mode);
      const request = body(transaction.objectStore(storeName));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("the browser's database refused the training"));
    });
  } finally {
    database.close();
  }
}

/** The last training; undefined if there is none, or if the browser keeps nothing, as in some private windows. */
export async function loadRun(): Promise<SavedRun | undefined> {
  try {
    return (await transact("readonly", (store) => store.get(key) as IDBRequest<SavedRun | undefined>)) ?? undefined;
  } catch {
    return undefined;
  }
}

/** All of it or, if this fails, nothing. */
export async function saveRun(run: SavedRun): Promise<void> {
  await transact("readwrite", (store) => store.put(run, key));
}

export async function forgetRun(): Promise<void> {
  await transact("readwrite", (store) => store.delete(key)).catch(() => undefined);
}

/** Whether this is the page that may save: of several that are open, the first. */
export function becomeSaver(): Promise<boolean> {
  if (navigator.locks === undefined) return Promise.resolve(true);
  return new Promise((resolve) => {
    void navigator.locks.request("jerboa-train", { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => undefined); // held until the page closes
    });
  });
}

// Saved training runs in the browser's database, one for each of the last few models. They survive a reload and the
// loss of the device.

/** A text that the model generated after some step. */
export interface Sample {
  readonly step: number;
  readonly loss: number;
  readonly prompt: string;
  readonly text: string;
}

export interface SavedRun {
  /** The model that the checkpoint belongs to, which is also the key. */
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
const timeIndex = "savedAt";
const databaseVersion = 2; // 1 had no index
const maxRuns = 4;

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(databaseName, databaseVersion);
    request.onupgradeneeded = () => {
      const isThere = request.result.objectStoreNames.contains(storeName);
      const store = isThere ? request.transaction!.objectStore(storeName) : request.result.createObjectStore(storeName);
      store.createIndex(timeIndex, "savedAt" satisfies keyof SavedRun); // is read without the checkpoints
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser's database cannot be opened"));
  });
}

/** The result of the request that `body` makes, once the transaction is complete. */
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

/**
 * The last training run of a model; undefined if there is none, or if the browser keeps no data, as in some private
 * windows.
 */
export async function loadRun(model: string): Promise<SavedRun | undefined> {
  try {
    return (await transact("readonly", (store) => store.get(model) as IDBRequest<SavedRun | undefined>)) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Saves everything or, on failure, nothing. Deletes the runs of the models that were trained least recently. */
export async function saveRun(run: SavedRun): Promise<void> {
  await transact("readwrite", (store) => {
    let others = 0;
    const cursor = store.index(timeIndex).openKeyCursor(null, "prev"); // latest first
    cursor.onsuccess = () => {
      if (cursor.result === null) return;
      const model = cursor.result.primaryKey;
      if (model !== run.model && ++others >= maxRuns) store.delete(model);
      cursor.result.continue();
    };
    return store.put(run, run.model);
  });
}

export async function forgetRun(model: string): Promise<void> {
  await transact("readwrite", (store) => store.delete(model)).catch(() => undefined);
}

/** Whether this page may save: of several open pages, only the first does. */
export function becomeSaver(): Promise<boolean> {
  if (navigator.locks === undefined) return Promise.resolve(true);
  return new Promise((resolve) => {
    void navigator.locks.request("jerboa-train", { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => undefined); // held until the page closes
    });
  });
}

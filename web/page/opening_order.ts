/** Shows the last of the visitor's requests that can be opened, however long each takes to read and compile. */
export class OpeningOrder {
  private asked = 0;
  private accepted = 0;

  /** A ticket for a new request; take it before awaiting anything. */
  ask(): number {
    return ++this.asked;
  }

  /** Whether a later request has been accepted. */
  isOutdated(ticket: number): boolean {
    return ticket < this.accepted;
  }

  /** Call this with something that can be opened; returns false if it is outdated. */
  accept(ticket: number): boolean {
    if (this.isOutdated(ticket)) return false;
    this.accepted = ticket;
    return true;
  }

  /** Whether there was no later request. Errors of older requests are not shown. */
  isLatest(ticket: number): boolean {
    return ticket === this.asked;
  }
}

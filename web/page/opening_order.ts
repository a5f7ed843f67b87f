/** Of what a visitor asks to be opened, the last that can be opened is shown, however long each takes to read and compile. */
export class OpeningOrder {
  private asked = 0;
  private accepted = 0;

  /** A ticket for what is asked for now: take it before anything is awaited. */
  ask(): number {
    return ++this.asked;
  }

  /** Whether something that was asked for later has been accepted. */
  isOutdated(ticket: number): boolean {
    return ticket < this.accepted;
  }

  /** Call it with what can be opened; false if it is outdated. */
  accept(ticket: number): boolean {
    if (this.isOutdated(ticket)) return false;
    this.accepted = ticket;
    return true;
  }

  /** Whether nothing has been asked for since: only then does an old problem say nothing about a newer request. */
  isLatest(ticket: number): boolean {
    return ticket === this.asked;
  }
}

(() => {
  "use strict";

  // Rows and details that the page holds packed: base64 of deflated HTML, which the page's own template made and escaped.
  async function unpacked(holder) {
    const bytes = Uint8Array.from(atob(holder.content.textContent.trim()), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const html = await new Response(stream).text();
    return new DOMParser().parseFromString(html, "text/html");
  }

  class LiveTable {
    constructor(table) {
      this.table = table;
      this.head = [...table.tHead.rows[0].cells];
      this.controls = document.querySelector(`.controls[data-for="${table.id}"]`);
      this.selects = [...this.controls.querySelectorAll("select")];
      this.holder = document.querySelector(`template[data-for="${table.id}"]`);
      this.more = this.controls.querySelector("button.more");
      this.total = Number(table.dataset.rows);
      this.read();
      this.head.forEach((header, index) => {
        header.querySelector("button").addEventListener("click", () => this.sort(header, index));
      });
      this.controls.addEventListener("input", () => this.filter());
      if (this.more) this.more.addEventListener("click", () => this.complete());
      this.controls.hidden = false;
      this.count();
    }

    read() {
      this.groups = [...this.table.tBodies].map(body => ({
        body, rows: [...body.rows].filter(row => !row.classList.contains("group")),
      }));
      this.rows = this.groups.flatMap(group => group.rows);
      this.text = new Map();
    }

    words(row) {
      if (!this.text.has(row)) this.text.set(row, `${row.dataset.words} ${row.textContent}`.toLowerCase());
      return this.text.get(row);
    }

    // All rows, the packed ones included; sorting and filtering need them.
    async complete() {
      if (!this.holder) return;
      const holder = this.holder;
      this.holder = null;
      if (this.more) { this.more.disabled = true; this.more.textContent = "Unpacking …"; }
      try {
        const found = await unpacked(holder);
        const bodies = new Map(this.groups.map(group => [group.body.dataset.group, group.body]));
        for (const body of found.querySelectorAll("tbody")) {
          const own = bodies.get(body.dataset.group);
          if (own) own.append(...[...body.rows].filter(row => !row.classList.contains("group")));
          else this.table.append(body);
        }
        holder.remove();
        const place = row => Number(row.dataset.i);
        const number = body => Number(body.dataset.group);
        this.read();
        this.table.append(...[...this.table.tBodies].sort((a, b) => number(a) - number(b)));
        this.read();
        for (const { body, rows } of this.groups) body.append(...rows.sort((a, b) => place(a) - place(b)));
        this.read();
        if (this.more) this.more.remove();
        this.more = null;
        this.count();
      } catch (error) {
        this.holder = holder;
        if (this.more) this.more.textContent = "This browser cannot unpack them";
      }
    }

    async filter() {
      await this.complete();
      const words = this.controls.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const { body, rows } of this.groups) {
        let left = 0;
        for (const row of rows) {
          const fits = this.selects.every(s => !s.value || row.dataset[s.name] === s.value);
          row.hidden = !fits || !words.every(word => this.words(row).includes(word));
          left += !row.hidden;
        }
        body.hidden = !left;
      }
      this.count();
    }

    count() {
      const shown = this.rows.reduce((sum, row) => sum + !row.hidden, 0);
      const number = n => n.toLocaleString("en");
      this.controls.querySelector(".shown").textContent = `${number(shown)} of ${number(this.total)} rows`;
    }

    // Rows move inside their group only: across groups a column's numbers are not comparable.
    async sort(header, index) {
      await this.complete();
      const next = { none: "ascending", ascending: "descending", descending: "none" }[header.ariaSort ?? "none"];
      for (const other of this.head) other.ariaSort = "none";
      header.ariaSort = next;
      const sign = next === "descending" ? -1 : 1;
      const value = row => {
        const cell = row.cells[index];
        if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
        return header.classList.contains("n") ? null : cell.textContent.trim();
      };
      const collator = new Intl.Collator("en", { numeric: true });
      const order = (a, b) => {
        const [x, y] = [a[1], b[1]];
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (typeof x === "number" ? x - y : collator.compare(x, y));
      };
      for (const { body, rows } of this.groups) {
        const sorted = next === "none" ? rows : rows.map(row => [row, value(row)]).sort(order).map(pair => pair[0]);
        body.append(...sorted);
      }
    }
  }

  for (const table of document.querySelectorAll("table.live")) new LiveTable(table);

  // Details of older records, unpacked when somebody asks for them.
  const older = document.querySelector("template[data-for=records]");
  const all = document.getElementById("older-records");
  async function unpackRecords() {
    const holder = document.querySelector("template[data-for=records]");
    if (!holder) return;
    const found = await unpacked(holder);
    holder.replaceWith(...found.body.children);
    all.remove();
  }
  if (older) {
    all.hidden = false;
    all.addEventListener("click", unpackRecords);
  }

  async function reveal() {
    const name = location.hash.slice(1);
    if (!name) return;
    if (!document.getElementById(name) && name.startsWith("record-")) await unpackRecords();
    const target = document.getElementById(name);
    const closed = target && target.closest("details");
    if (closed) { closed.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", reveal);
  reveal();
})();

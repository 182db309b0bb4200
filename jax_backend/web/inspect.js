'use strict';
// The data are the JSON of jax_backend.session_report.Report, gzipped, in base64. A folded place is an index or
// [start, length, count, body]; `body` folds the first round, so that round r has the same places plus r * length.
const $ = (selector) => document.querySelector(selector);
const state = { program: null, chosen: null, open: new Set(), round: new Map() };
let report;

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const scaled = (value, step, units) => {
  let unit = 0;
  while (value >= step && unit < units.length - 1) { value /= step; unit++; }
  return `${value >= 100 || unit === 0 && step === 1024 ? value.toFixed(0) : value.toPrecision(3)} ${units[unit]}`;
};
const bytes = (n) => scaled(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
const time = (s) => s ? (s < 1e-3 ? scaled(s * 1e6, 1e3, ['µs']) : scaled(s * 1e3, 1e3, ['ms', 's'])) : '';
const count = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
const isBlock = Array.isArray;
const name = (value) => `t${value}`;
const typed = (program, value) => `${name(value)} ${program.types[value]}`;
const gives = (program, op) => op.outputs.map((v) => program.types[v]).join(', ');
const having = (op) => op.fields.map(([key, value]) => `${key}=${value}`).join(' ');
const text = (program, op) => `${op.kind} ${op.outputs.map((v) => typed(program, v)).join(' ')} ${having(op)}`;

async function read() {
  const packed = Uint8Array.from(atob($('#data').textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).json();
}

// ---- left: programs and runs

function showPrograms() {
  $('#programs').replaceChildren(...report.programs.map((program) => {
    const found = matches(program).length;
    const note = $('#find').value ? `${found} found` : `ran ${program.runs}×, ${time(program.run_s / program.runs)} each`;
    const pick = make('button', { className: 'pick', onclick: () => choose(program) },
      `Program ${program.number} · ${count(program.ops.length, 'operation')}`, make('small', {}, note));
    pick.setAttribute('aria-current', program === state.program);
    return pick;
  }));
}

function runRows(places, shift) {
  return places.map((place) => {
    if (isBlock(place)) {
      const [, , times, body] = place;
      return make('div', { className: 'times' }, make('b', {}, `${times} times:`), ...runRows(body, shift));
    }
    const [number, rule, seconds] = report.runs[place + shift];
    return make('div', { className: 'run', title: `ends because ${report.rules[rule]}` },
      make('button', { onclick: () => choose(report.programs[number]) }, `program ${number}`),
      make('span', {}, `${time(seconds)} · ${rule}`));
  });
}

// ---- middle: one program

function choose(program, op = null) {
  if (state.program !== program) {
    const blocks = program.blocks.filter(isBlock);
    state.round.clear();
    state.open = new Set(program.blocks.length > 20 ? [] : blocks.map(([start, length]) => `${start}:${length}`));
  }
  state.program = program;
  showPrograms();
  const { memory } = program;
  const rules = new Set(report.runs.filter(([number]) => number === program.number).map(([, rule]) => rule));
  $('#program').replaceChildren(
    make('h3', {}, `Program ${program.number}: ${count(program.ops.length, 'operation')}, ${count(program.runs, 'run')}`),
    make('p', { id: 'reason' }, `Compiled in ${time(program.compile_s)}: ${program.reason}.`),
    make('p', { id: 'cut' }, `Ends where it does because ${[...rules].map((rule) => report.rules[rule]).join('; or ')}.`),
    make('p', {}, [count(program.inputs.length, 'input'), count(program.donated.length, 'of them reused').replace(/s$/, ''),
      count(program.outputs.length, 'output'), `${bytes(memory.argument)} in`, `${bytes(memory.output)} out`,
      `${bytes(memory.temp)} in between`, `${scaled(program.flops, 1e3, ['flop', 'kflop', 'Mflop', 'Gflop', 'Tflop'])}`].join(' · ')));
  showCharts(program);
  select(op);
}

function showCharts(program) {
  const byKind = new Map();
  for (const op of program.ops) byKind.set(op.kind, (byKind.get(op.kind) ?? 0) + op.seconds);
  const kinds = [...byKind].sort((a, b) => b[1] - a[1]);
  const total = kinds.reduce((sum, [, seconds]) => sum + seconds, 0);
  const first = kinds.slice(0, 6);
  const bars = first.map(([kind, seconds]) => {
    const bar = make('i');
    bar.style.width = `${100 * seconds / (first[0][1] || 1)}%`;
    return make('div', { className: 'bar' }, make('span', { title: kind }, kind), bar, make('span', {}, time(seconds) || '0'));
  });
  const most = Math.max(...program.ops.map((op) => op.live_bytes), 1);
  $('#charts').replaceChildren(
    make('figure', {}, make('figcaption', {}, `Time by operation, ${time(total) || 'not measured'} in all; a fused one has its share`), ...bars),
    make('figure', {}, make('figcaption', {}, `Live bytes after each operation, ${bytes(most)} at most, were nothing fused`), area(program, most)));
}

function area(program, most) {
  const n = program.ops.length;
  const points = program.ops.map((op, i) => `L${i} ${100 - 100 * op.live_bytes / most}H${i + 1}`).join('');
  const svg = new DOMParser().parseFromString(
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${n} 100" preserveAspectRatio="none">` +
    `<path d="M0 100${points}V100Z"/></svg>`, 'image/svg+xml').documentElement;
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(n - 1, Math.floor(n * (event.clientX - box.left) / box.width)));
  };
  svg.addEventListener('click', (event) => select(at(event), true));
  return svg;
}

function matches(program) {
  const wanted = $('#find').value.toLowerCase().split(/\s+/).filter(Boolean);
  const places = [...program.ops.keys()];
  if (!wanted.length) return places;
  return places.filter((n) => wanted.every((word) => text(program, program.ops[n]).toLowerCase().includes(word)));
}

function marked(string) {
  const word = $('#find').value.trim().split(/\s+/)[0].toLowerCase();
  const at = word ? string.toLowerCase().indexOf(word) : -1;
  return at < 0 ? [string] : [string.slice(0, at), make('mark', {}, string.slice(at, at + word.length)), string.slice(at + word.length)];
}

function showOps() {
  const program = state.program, searching = $('#find').value.trim() !== '';
  const found = matches(program);
  const body = $('#ops tbody');
  const most = { t: Math.max(...program.ops.map((op) => op.seconds), 1e-12), b: Math.max(...program.ops.map((op) => op.num_bytes), 1) };
  $('#found').textContent = searching ? `${found.length} of ${program.ops.length}` : '';
  $('#expand').disabled = $('#collapse').disabled = searching || !program.blocks.some(isBlock);
  body.replaceChildren(...(searching ? found.map((n) => opRow(program, n, 0, most)) : rows(program, program.blocks, 0, 0, most)));
}

function rows(program, places, shift, depth, most) {
  return places.flatMap((place) => {
    if (!isBlock(place)) return [opRow(program, place + shift, depth, most)];
    const [start, length, times, body] = place;
    const key = `${start + shift}:${length}`, round = state.round.get(key) ?? 0;
    const head = blockRow(program, [start + shift, length, times], key, round, depth);
    return state.open.has(key) ? [head, ...rows(program, body, shift + round * length, depth + 1, most)] : [head];
  });
}

function blockRow(program, [start, length, times], key, round, depth) {
  const ops = program.ops.slice(start, start + length * times);
  const sum = (part) => ops.reduce((total, op) => total + op[part], 0);
  const kinds = ops.slice(0, length).map((op) => op.kind);
  const open = state.open.has(key);
  const title = make('td', { colSpan: 3 }, `${open ? '▾' : '▸'} ${times} × ${count(length, 'operation')} `);
  title.style.paddingLeft = `${8 + 16 * depth}px`;
  if (open) {
    const turn = (by) => (event) => { event.stopPropagation(); state.round.set(key, (round + by + times) % times); showOps(); };
    title.append(make('button', { title: 'round before', onclick: turn(-1) }, '‹'), ` round ${round + 1} of ${times} `, make('button', { title: 'next round', onclick: turn(1) }, '›'));
  } else {
    const rest = kinds.length > 6 ? ', …' : '';
    title.append(make('small', {}, kinds.slice(0, 6).join(', ') + rest));
  }
  const toggle = () => { open ? state.open.delete(key) : state.open.add(key); showOps(); };
  const row = make('tr', { className: 'block', onclick: toggle, tabIndex: 0 },
    make('td', { className: 'n' }, `${start}–${start + length * times - 1}`), title,
    make('td', { className: 'n' }, time(sum('seconds'))), make('td', { className: 'n' }, bytes(sum('num_bytes'))));
  row.setAttribute('aria-expanded', open);
  return row;
}

function opRow(program, n, depth, most) {
  const op = program.ops[n];
  const kind = make('td', {}, ...marked(op.kind));
  kind.style.paddingLeft = `${8 + 16 * depth}px`;
  const spent = make('td', { className: 'n t' }, time(op.seconds)), size = make('td', { className: 'n b' }, bytes(op.num_bytes));
  spent.style.setProperty('--share', `${100 * op.seconds / most.t}%`);
  size.style.setProperty('--share', `${100 * op.num_bytes / most.b}%`);
  const row = make('tr', { className: 'op', onclick: () => select(n), tabIndex: 0 },
    make('td', { className: 'n' }, `${n}`), kind, make('td', {}, ...marked(gives(program, op))), make('td', { title: having(op) }, ...marked(having(op))), spent, size);
  row.dataset.op = n;
  row.setAttribute('aria-selected', n === state.chosen);
  return row;
}

// Opens the blocks around operation n, each at the round that holds it.
function reveal(places, n, shift) {
  for (const place of places) {
    if (!isBlock(place)) continue;
    const [start, length, times, body] = place, offset = n - shift - start;
    if (offset < 0 || offset >= length * times) continue;
    const round = Math.floor(offset / length), key = `${start + shift}:${length}`;
    state.open.add(key);
    state.round.set(key, round);
    reveal(body, n, shift + round * length);
  }
}

// ---- right: one operation

function select(n, scroll = false) {
  state.chosen = n;
  if (scroll && n !== null) reveal(state.program.blocks, n, 0);
  showOps();
  if (n === null) return;
  if (scroll) $(`tr[data-op="${n}"]`)?.scrollIntoView({ block: 'center' });
  const program = state.program, op = program.ops[n];
  const list = make('dl');
  const line = (key, ...value) => list.append(make('dt', {}, key), make('dd', {}, ...value));
  for (const value of op.inputs) line('in', origin(program, value));
  for (const value of op.outputs) line('out', typed(program, value), uses(program, value));
  for (const [key, value] of op.fields) line(key, value);
  line('time', time(op.seconds) || 'none of its own: fused away, or not measured');
  line('bytes', `${bytes(op.num_bytes)} out; ${bytes(op.live_bytes)} live after it`);
  const scope = new RegExp(`/${op.kind}\\.${n}[/"]`);
  const lines = program.hlo.split('\n').filter((l) => scope.test(l)).map((l) => l.trim().replace(/, (metadata|backend_config)=.*/, ''));
  $('#detail').replaceChildren(make('h3', {}, `${n} · ${op.kind}`), list, make('h3', {}, count(lines.length, 'instruction')),
    lines.length ? make('pre', {}, lines.join('\n')) : make('p', { className: 'hint' }, 'XLA made nothing of it: its result is a constant, a view, or part of another instruction.'));
}

function origin(program, value) {
  const maker = program.ops.findIndex((op) => op.outputs.includes(value));
  if (maker < 0) return `${typed(program, value)}, from outside${program.donated.includes(value) ? ', reused' : ''}`;
  return make('button', { onclick: () => select(maker, true) }, `${typed(program, value)}, of ${maker} ${program.ops[maker].kind}`);
}

function uses(program, value) {
  const takers = [...program.ops.keys()].filter((n) => program.ops[n].inputs.includes(value));
  const parts = takers.map((n) => make('button', { onclick: () => select(n, true) }, `${n} ${program.ops[n].kind}`));
  if (program.outputs.includes(value)) parts.push('the result');
  return make('div', {}, parts.length ? 'to ' : 'unused', ...parts.flatMap((part, n) => n ? [', ', part] : [part]));
}

// ---- start

function setBlocks(open) {
  const walk = (places, shift) => places.filter(isBlock).forEach(([start, length, , body]) => {
    const key = `${start + shift}:${length}`;
    state.open.add(key);
    walk(body, shift + (state.round.get(key) ?? 0) * length);
  });
  if (open) walk(state.program.blocks, 0); else state.open.clear();
  showOps();
}

read().then((data) => {
  report = data;
  document.title = `${report.name} · burn-xla`;
  $('h1').textContent = report.name;
  const compile = report.programs.reduce((sum, program) => sum + program.compile_s, 0);
  $('#facts').textContent = [count(report.operations, 'operation'), `${count(report.runs.length, 'run')} of ${count(report.programs.length, 'program')}`,
    count(report.reads, 'read'), `${time(compile)} compiling`, report.device, ...Object.entries(report.versions).map((pair) => pair.join(' '))].join(' · ');
  $('#runs').replaceChildren(...runRows(report.timeline, 0));
  $('#failed').hidden = !report.failures.length;
  $('#failed ul').replaceChildren(...report.failures.map((line) => make('li', {}, line)));
  $('#find').addEventListener('input', () => { showPrograms(); showOps(); });
  $('#expand').onclick = () => setBlocks(true);
  $('#collapse').onclick = () => setBlocks(false);
  $('#whole').onclick = () => { $('#hlo pre').textContent = state.program.hlo; $('#hlo').showModal(); };
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.target.matches('tbody tr')) event.target.click();
    if (event.key === '/' && event.target !== $('#find')) { event.preventDefault(); $('#find').focus(); }
  });
  if (report.programs.length) choose(report.programs.reduce((a, b) => b.run_s > a.run_s ? b : a));
  document.body.dataset.ready = 'yes';
});

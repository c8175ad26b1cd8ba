'use strict';
// The address chooses as a hand would, and follows the hand:
// page.html#batch=16&checkpoint=sqrt&card=h100&at=512, or limit=24GiB in place of a card.
const $ = id => document.getElementById(id);
const data = JSON.parse($('data').textContent);

// --- Words ---------------------------------------------------------------------------------------

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const unitOf = bytes => bytes < 1024 ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), units.length - 1);
const inUnit = (bytes, unit) => +(bytes / 1024 ** unit).toFixed(2) + ' ' + units[unit];
const size = bytes => inUnit(bytes, unitOf(bytes));
const count = number => number.toLocaleString('en');
const phaseWord = name => name.replace('_', ' ');

// Bytes of "24GiB", "300 MiB" or "24", which is GiB; undefined for anything else.
function parseSize(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([KMGTP]iB|B)?\s*$/i.exec(text);
  if (!found) return undefined;
  const unit = found[2] ? units.findIndex(u => u.toLowerCase() === found[2].toLowerCase()) : 3;
  return Math.round(found[1] * 1024 ** unit);
}

// --- Plans ---------------------------------------------------------------------------------------

// Differences in base 36, `~c` for twelve that are 0.
function decode(text) {
  const out = [];
  let value = 0;
  for (const part of text.split(',')) {
    if (part[0] === '~') {
      for (let i = parseInt(part.slice(1), 36); i > 0; --i) out.push(value);
    } else {
      value += parseInt(part, 36);
      out.push(value);
    }
  }
  return out;
}

// Categories that some plan has memory in, from the bottom of the curve to its top.
const shown = data.categories.map((_, k) => k)
  .filter(k => data.plans.some(plan => !/^~\w+$/.test(data.texts[plan.series[k]])));

function curveOf(plan) {
  if (plan.curve) return plan.curve;
  const points = decode(data.texts[plan.points]);
  const series = plan.series.map(text => decode(data.texts[text]));
  const totals = points.map((_, i) => shown.reduce((sum, k) => sum + series[k][i], 0));
  const top = totals.indexOf(Math.max(...totals));
  return plan.curve = { points, series, totals, top };
}

function phaseAt(plan, event) {
  const found = plan.phases.find(([, begin, end]) => event > begin && event <= end);
  return found ? phaseWord(found[0]) : 'outside of the phases';
}

// --- Controls ------------------------------------------------------------------------------------

const ownSize = 'own';
const isRange = axis => $(axis.name).type === 'range';
const wordOf = axis => axis.values[+$(axis.name).value];
const value = name => { const axis = data.axes.find(a => a.name === name); return axis && wordOf(axis); };

function chosenPlan() {
  let at = 0;
  for (const axis of data.axes) at = at * axis.values.length + +$(axis.name).value;
  return data.plans[at];
}

// Whether any plan changes with it.
function matters(axis) {
  let stride = 1;
  for (const later of data.axes.slice(data.axes.indexOf(axis) + 1)) stride *= later.values.length;
  const texts = data.plans.map(plan => JSON.stringify(plan));
  return texts.some((text, i) => Math.floor(i / stride) % axis.values.length > 0 && text !== texts[i - stride]);
}

function chosenLimit() {
  const card = $('card').value;
  if (card === '') return { bytes: 0, name: '' };
  if (card !== ownSize) {
    const bytes = data.cards.find(([name]) => name === card)[1];
    return { bytes, name: `${card} (${size(bytes)})`, option: ' --card ' + card };
  }
  const bytes = parseSize($('limit').value);
  return bytes ? { bytes, name: size(bytes), option: ' --limit ' + exactSize(bytes) } : { bytes: 0, name: '' };
}

// As the command reads it: the largest unit that it is a whole number of.
function exactSize(bytes) {
  let unit = 0;
  while (bytes % 1024 === 0 && unit < units.length - 1) { bytes /= 1024; ++unit; }
  return bytes + units[unit];
}

function verdictOf(plan, limit) {
  if (!limit) return undefined;
  if (plan.reserved <= limit) {
    return { word: 'fits', tone: 'good', room: size(limit - plan.reserved) + ' to spare' };
  }
  if (plan.peak > limit) {
    return { word: 'does not fit', tone: 'bad', room: size(plan.peak - limit) + ' too much' };
  }
  return { word: 'may fit', tone: 'fair', room: 'if cached memory is given back; the command below tries it' };
}

function commandOf(limit) {
  const option = (name, axis, usual) => value(axis) && value(axis) !== usual ? ` --${name} ${value(axis)}` : '';
  return data.command + option('depth', 'depth') + option('seq', 'seq') + option('batch', 'batch') +
    option('optimizer', 'optimizer') + option('dtype', 'precision', 'f32') +
    option('checkpoint', 'checkpoint', 'none') + (limit.option || '');
}

function setUpControls() {
  for (const label of document.querySelectorAll('#controls label')) label.hidden = true;
  for (const axis of data.axes) {
    const control = $(axis.name);
    if (isRange(axis)) {
      control.max = axis.values.length - 1;
    } else {
      axis.values.forEach((word, i) => control.add(new Option(/^adam/.test(word) ? 'adam, adamw' : word, i)));
    }
    control.value = axis.start;
    $(axis.name + '-label').hidden = !matters(axis);
  }
  $('card-label').hidden = false;
  $('card').add(new Option('no limit', ''));
  for (const [name, bytes] of data.cards) $('card').add(new Option(`${name}, ${size(bytes)}`, name));
  $('card').add(new Option('another size', ownSize));
  $('card').value = data.card || (data.limit ? ownSize : '');
  $('limit').value = data.limit ? exactSize(data.limit) : '24GiB';
}

// --- What is said --------------------------------------------------------------------------------

function subtitleOf(plan, limit, verdict) {
  const depth = value('depth'), seq = value('seq'), checkpoint = value('checkpoint');
  const pieces = data.microBatches > 1 ? ` in ${count(data.microBatches)} micro-batches` : '';
  const parts = [
    count(plan.parameters) + ' parameters' + (depth ? ` in ${count(+depth)} ${+depth === 1 ? 'block' : 'blocks'}` : ''),
    'batch ' + count(+value('batch')) + (seq ? ` of ${count(+seq)} tokens` : '') + pieces,
    value('precision'), value('optimizer'),
    checkpoint === 'none' ? 'no checkpointing' : 'checkpointing ' + checkpoint];
  if (verdict) parts.push(`${verdict.word} ${limit.name}`);
  return parts.join(' · ');
}

function newElement(name, attributes, text) {
  const out = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) out.setAttribute(key, attributes[key]);
  if (text !== undefined) out.textContent = text;
  return out;
}

function signOf(k) {
  const out = newElement('svg', { class: 'sign', 'aria-hidden': 'true' });
  out.append(newElement('rect', { width: '100%', height: '100%', fill: `url(#sign${k})` }));
  return out;
}

function rowOf(sign, cells, kind) {
  const row = document.createElement('tr');
  if (kind) row.className = kind;
  cells.forEach(text => { row.insertCell().textContent = text; });
  if (sign) row.cells[0].prepend(sign);
  return row;
}

// Broken between options only.
function showCommand(text) {
  const span = part => Object.assign(document.createElement('span'), { textContent: part });
  $('command').replaceChildren(...text.split(/ (?=--)/).flatMap(part => [span(part), ' ']).slice(0, -1));
}

function showTable(plan) {
  const cells = (name, bytes) => [name, size(bytes), count(bytes), (bytes / plan.peak * 100).toFixed(1) + ' %'];
  const rows = shown.map(k => rowOf(signOf(k), cells(data.categories[k], plan.at[k])));
  $('rows').replaceChildren(...rows.reverse(), rowOf(null, cells('peak allocated', plan.peak), 'sum'));
}

function show() {
  const plan = chosenPlan(), limit = chosenLimit(), verdict = verdictOf(plan, limit.bytes);
  for (const axis of data.axes.filter(isRange)) {
    $(axis.name + '-value').textContent = count(+wordOf(axis));
    $(axis.name).setAttribute('aria-valuetext', count(+wordOf(axis)));
  }
  $('limit-label').hidden = $('card').value !== ownSize;
  const isWrong = $('card').value === ownSize && !limit.bytes;
  $('limit').setAttribute('aria-invalid', isWrong);
  $('limit-error').textContent = isWrong ? 'a size, as 24GiB' : '';
  $('subtitle').textContent = subtitleOf(plan, limit, verdict);
  $('peak').textContent = size(plan.peak);
  $('peak').title = count(plan.peak) + ' bytes';
  $('when').textContent = 'in ' + phaseWord(plan.phase) + (plan.layer ? ', at ' + plan.layer : '');
  $('reserved').textContent = size(plan.reserved);
  $('reserved').title = count(plan.reserved) + ' bytes';
  $('steps').textContent = plan.steps ? `in ${plan.steps} steps; it may grow` : 'however many steps';
  $('again-fact').hidden = !plan.again;
  $('again').textContent = Math.round(plan.again * 100) + ' %';
  $('verdict-fact').hidden = !verdict;
  $('verdict').textContent = verdict ? verdict.word : '';
  $('verdict').className = verdict ? verdict.tone : '';
  $('room').textContent = verdict ? verdict.room : '';
  showCommand(commandOf(limit));
  showTable(plan);
  draw(plan, limit);
}

// --- The chart -----------------------------------------------------------------------------------

// Categories differ in their marks as well as in colour.
const marks = ['', 'M0 4H8', 'M2 0V8 M6 0V8', 'M-1 9L9 -1 M-1 1L1 -1 M7 9L9 7', 'M2 2h.01 M6 6h.01',
  'M-1 -1L9 9 M7 -1L9 1 M-1 7L1 9', 'M0 4H8 M4 0V8'];
const isDotted = mark => mark.includes('h.01');

function setUpSigns() {
  $('signs').firstChild.replaceChildren(...marks.map((mark, k) => {
    const out = newElement('pattern', { id: 'sign' + k, width: 8, height: 8, patternUnits: 'userSpaceOnUse' });
    out.append(newElement('rect', { width: 8, height: 8, fill: `var(--c${k})` }));
    out.append(newElement('path', { d: mark, stroke: 'var(--mark)', 'stroke-width': isDotted(mark) ? 2.2 : 1.3,
      'stroke-linecap': isDotted(mark) ? 'round' : 'butt' }));
    return out;
  }));
}

const pen = document.createElement('canvas').getContext('2d');
function textWidth(text) {
  pen.font = '13px system-ui, sans-serif';
  return pen.measureText(text).width;
}

// Powers of two in bytes, 1, 2 or 5 times a power of ten in events; at most `most` of them.
const byteStep = (highest, most) => 2 ** Math.max(Math.ceil(Math.log2(highest / most)), 0);
function eventStep(highest, most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(highest / most, 1)));
  return [1, 2, 5, 10].map(n => n * power).find(step => highest / step <= most);
}

let chart;  // what the cursor needs of what was drawn last
let cursor = null;  // a point of the curve

function draw(plan, limit) {
  const svg = $('chart'), curve = curveOf(plan);
  // In the screen's own pixels, so that letters are as large on a phone.
  const width = svg.clientWidth, height = svg.clientHeight;
  const highest = Math.max(plan.peak, limit.bytes < plan.peak * 3 ? limit.bytes : 0, 1);
  const unit = unitOf(highest), step = byteStep(highest, 5);
  const ticks = [];
  for (let v = 0; v <= highest * 1.1; v += step) ticks.push([v, v ? inUnit(v, unit) : '0']);
  const box = { left: Math.ceil(Math.max(...ticks.map(([, text]) => textWidth(text)))) + 10, right: width - 12,
    top: 26, bottom: height - 42 };
  const x = event => box.left + (box.right - box.left) * event / plan.events;
  const y = bytes => box.bottom - (box.bottom - box.top) * bytes / (highest * 1.12);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('aria-valuemax', plan.events);
  chart = { plan, curve, box, x, y, texts: [], areas: [], cursor: newElement('g', {}) };
  svg.replaceChildren();
  drawBytes(svg, box, y, ticks);
  drawAreas(svg);
  drawEvents(svg);
  drawPhases(svg);
  drawPeak(svg);
  if (limit.bytes && limit.bytes <= highest) drawLimit(svg, limit);
  drawNames(svg);
  svg.append(chart.cursor);
  showCursor();
}

function drawBytes(svg, box, y, ticks) {
  for (const [bytes, text] of ticks) {
    const at = y(bytes);
    svg.append(newElement('line', { x1: box.left, x2: box.right, y1: at, y2: at, class: bytes ? 'grid' : 'axis' }));
    svg.append(newElement('text', { x: box.left - 6, y: at + 4, 'text-anchor': 'end', class: 'bytes' }, text));
  }
}

function drawAreas(svg) {
  const { curve, box, x, y, plan } = chart;
  const xs = [box.left, ...curve.points.map(x), x(plan.events)];
  const padded = values => [values[0], ...values, values[values.length - 1]];
  let below = xs.map(() => 0);
  const lines = [];  // over all areas
  for (const k of shown) {
    const above = padded(curve.series[k]).map((bytes, i) => bytes + below[i]);
    const line = values => values.map((bytes, i) => `${xs[i].toFixed(1)} ${y(bytes).toFixed(1)}`);
    const edge = 'M' + line(above).join('L');
    svg.append(newElement('path', { d: `${edge}L${line(below).reverse().join('L')}Z`, fill: `url(#sign${k})`, class: 'area' }));
    lines.push(newElement('path', { d: edge, class: 'edge' }));
    chart.areas.push({ name: data.categories[k], xs, highs: above.map(y), lows: below.map(y) });
    below = above;
  }
  svg.append(...lines);
}

function drawNames(svg) {
  for (const area of chart.areas) placeText(svg, area.name, 'name', placesIn(area));
}

// Places for the name of an area inside of it, best first: with room above and below, near the middle.
function placesIn({ name, xs, highs, lows }) {
  const half = textWidth(name) / 2 + 4, first = xs[0], last = xs[xs.length - 1], out = [];
  const weights = xs.map((_, i) => lows[i] - highs[i]);
  const middle = xs.reduce((sum, x, i) => sum + x * weights[i], 0) / weights.reduce((sum, w) => sum + w, 0);
  for (const x of xs.filter(x => x - half >= first && x + half <= last)) {
    const near = xs.map((_, i) => i).filter(i => Math.abs(xs[i] - x) <= half);
    const high = Math.max(...near.map(i => highs[i])), low = Math.min(...near.map(i => lows[i]));
    const score = Math.min(low - high, 40) - Math.abs(x - middle) / 100;
    if (low - high >= 14) out.push({ score, place: [x, (low + high) / 2 + 4, 'middle'] });
  }
  return out.sort((a, b) => b.score - a.score).map(({ place }) => place);
}

function drawEvents(svg) {
  const { box, x, plan } = chart;
  const step = eventStep(plan.events, (box.right - box.left) / 90);
  for (let event = 0; event <= plan.events; event += step) {
    const at = x(event);
    svg.append(newElement('line', { x1: at, x2: at, y1: box.bottom, y2: box.bottom + 5, class: 'axis' }));
    const anchor = at + textWidth(count(event)) / 2 > box.right + 10 ? 'end' : 'middle';
    svg.append(newElement('text', { x: at, y: box.bottom + 18, 'text-anchor': anchor, class: 'event' }, count(event)));
  }
  const title = ['allocations and frees of a step, in order', 'allocations and frees, in order']
    .find(text => textWidth(text) < box.right - box.left) || 'events';
  svg.append(newElement('text', { x: (box.left + box.right) / 2, y: box.bottom + 36, 'text-anchor': 'middle' }, title));
}

function drawPhases(svg) {
  const { box, x, plan } = chart;
  for (const [name, begin, end] of plan.phases) {
    const from = x(begin), to = x(end);
    const band = newElement('rect', { x: from, y: 1, width: Math.max(to - from, 1), height: 21, class: 'phase' });
    band.append(newElement('title', {}, phaseWord(name)));
    svg.append(band);
    if (from > box.left + 4) {
      svg.append(newElement('line', { x1: from, x2: from, y1: 22, y2: box.bottom, class: 'phase-line' }));
    }
    const text = [phaseWord(name), name.split('_')[0], name.slice(0, 3) + '.'].find(t => textWidth(t) + 6 < to - from);
    if (!text) continue;
    svg.append(newElement('text', { x: (from + to) / 2, y: 16, 'text-anchor': 'middle', class: 'phase-name' }, text));
  }
}

// Texts inside of the chart do not cover each other: the first place that is free, if there is one.
function placeText(svg, text, kind, places) {
  const width = textWidth(text) * (kind === 'name' ? 1 : 1.1) + 6;  // the others are bold
  for (const [x, y, anchor] of places) {
    const left = x - width * { start: 0, middle: .5, end: 1 }[anchor];
    const box = { left, right: left + width, top: y - 13, bottom: y + 4 };
    if (chart.texts.some(other => other.left < box.right && box.left < other.right &&
      other.top < box.bottom && box.top < other.bottom)) continue;
    chart.texts.push(box);
    svg.append(newElement('text', { x, y, 'text-anchor': anchor, class: kind }, text));
    return;
  }
}

function drawPeak(svg) {
  const { curve, box, x, y, plan } = chart;
  const text = 'peak ' + size(plan.peak), half = textWidth(text) * .55 + 4;
  const at = x(curve.points[curve.top]), top = y(plan.peak);
  svg.append(newElement('circle', { cx: at, cy: top, r: 4.5, class: 'dot' }));
  placeText(svg, text, 'peak', [[Math.min(Math.max(at, box.left + half), box.right - half), top - 10, 'middle']]);
}

function drawLimit(svg, limit) {
  const { box, y } = chart, at = y(limit.bytes), right = box.right - 4, left = box.left + 4;
  for (const kind of ['limit-ground', 'limit']) {
    svg.append(newElement('line', { x1: box.left, x2: box.right, y1: at, y2: at, class: kind }));
  }
  placeText(svg, 'limit ' + limit.name, 'limit-text',
    [[right, at - 6, 'end'], [left, at - 6, 'start'], [right, at + 16, 'end'], [left, at + 16, 'start']]);
}

// --- The cursor: by mouse, finger or key ---------------------------------------------------------

function showCursor() {
  const { plan, curve, box, x, y } = chart;
  if (cursor !== null) cursor = Math.min(Math.max(cursor, 0), curve.points.length - 1);
  const at = cursor === null ? curve.top : cursor, event = curve.points[at];
  const place = [`event ${count(event)} of ${count(plan.events)}`, phaseAt(plan, event)];
  const parts = shown.map(k => [k, curve.series[k][at]]).reverse();
  $('chart').setAttribute('aria-valuenow', event);
  $('chart').setAttribute('aria-valuetext', `${place.join(', ')}: ${size(curve.totals[at])}; ` +
    parts.map(([k, bytes]) => `${data.categories[k]} ${size(bytes)}`).join(', '));
  $('tip').hidden = cursor === null;
  chart.cursor.replaceChildren();
  if (cursor === null) return;
  chart.cursor.append(newElement('line', { x1: x(event), x2: x(event), y1: box.top, y2: box.bottom, class: 'cursor' }));
  chart.cursor.append(newElement('circle', { cx: x(event), cy: y(curve.totals[at]), r: 4.5, class: 'dot' }));
  showTip(place, curve.totals[at], parts);
}

function tipLine(kind, sign, ...texts) {
  const out = document.createElement('div');
  out.className = kind;
  for (const text of texts) out.append(Object.assign(document.createElement('span'), { textContent: text }));
  if (sign) out.firstChild.prepend(sign);
  return out;
}

function showTip(place, total, parts) {
  const tip = $('tip'), width = $('chart').clientWidth, at = chart.x(chart.curve.points[cursor]);
  const isWide = width > 600;
  const exact = bytes => isWide ? `${size(bytes)} (${count(bytes)} B)` : size(bytes);
  const places = isWide ? [place.join(', ')] : place;
  tip.replaceChildren(tipLine('title', null, exact(total)), ...places.map(text => tipLine('place', null, text)),
    ...parts.map(([k, bytes]) => tipLine('part', signOf(k), data.categories[k], exact(bytes))));
  const left = at < width / 2 ? at + 14 : at - 14 - tip.offsetWidth;
  tip.style.left = Math.min(Math.max(left, 0), width - tip.offsetWidth) + 'px';
  tip.style.top = chart.box.top + 6 + 'px';
}

function moveCursor(point) {
  cursor = point;
  showCursor();
}

function nearestPoint(event) {
  const { points } = chart.curve;
  let best = 0;
  points.forEach((at, i) => { if (Math.abs(at - event) < Math.abs(points[best] - event)) best = i; });
  return best;
}

function pointAt(pointer) {
  const { box, plan } = chart;
  const inside = (pointer.clientX - $('chart').getBoundingClientRect().left - box.left) / (box.right - box.left);
  moveCursor(nearestPoint(inside * plan.events));
}

function setUpCursor() {
  const svg = $('chart');
  svg.addEventListener('pointermove', pointAt);
  svg.addEventListener('pointerdown', pointAt);
  svg.addEventListener('pointerleave', pointer => { if (pointer.pointerType === 'mouse') moveCursor(null); });
  svg.addEventListener('focus', () => { if (cursor === null && svg.matches(':focus-visible')) moveCursor(chart.curve.top); });
  svg.addEventListener('blur', () => moveCursor(null));
  svg.addEventListener('keydown', key => {
    const last = chart.curve.points.length - 1, from = cursor === null ? chart.curve.top : cursor;
    const to = { ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1,
      PageDown: from - 10, PageUp: from + 10, Home: 0, End: last, Escape: null }[key.key];
    if (to === undefined || key.ctrlKey || key.metaKey || key.altKey) return;
    key.preventDefault();
    moveCursor(to);
  });
}

// --- The address ---------------------------------------------------------------------------------

function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const axis of data.axes) {
    const at = axis.values.indexOf(asked.get(axis.name));
    if (at >= 0) $(axis.name).value = at;
  }
  if (asked.has('limit')) { $('card').value = ownSize; $('limit').value = asked.get('limit'); }
  if (data.cards.some(([name]) => name === asked.get('card'))) $('card').value = asked.get('card');
  if (asked.get('card') === 'none') $('card').value = '';
  show();
  if (/^\d+$/.test(asked.get('at'))) moveCursor(nearestPoint(+asked.get('at')));
}

function writeAddress() {
  const parts = new URLSearchParams();
  for (const axis of data.axes) if (!$(axis.name + '-label').hidden) parts.set(axis.name, wordOf(axis));
  const card = $('card').value;
  if (card === ownSize) parts.set('limit', $('limit').value); else parts.set('card', card || 'none');
  try { history.replaceState(null, '', '#' + parts); } catch { /* a browser that forbids it in files */ }
}

setUpSigns();
setUpControls();
setUpCursor();
follow();
$('controls').addEventListener('input', () => { show(); writeAddress(); });
$('controls').addEventListener('submit', event => event.preventDefault());
addEventListener('hashchange', follow);
addEventListener('resize', show);

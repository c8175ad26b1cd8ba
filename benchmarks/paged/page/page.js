'use strict';
// The address chooses as a hand would, and follows the hand: page.html#group=serving&promise=no
const $ = id => document.getElementById(id);
const data = JSON.parse($('data').textContent);
const names = ['paged', 'default', 'expandable', 'cudaMallocAsync'];
const controls = ['text', 'group', 'promise', 'order', 'what'];
const widest = 2.5;  // where a bar ends

const median = values => {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};
const size = bytes => {
  const unit = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 4);
  return +(bytes / 1024 ** unit).toFixed(2) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit];
};
const percent = share => (100 * share).toFixed(1) + ' %';

function bytesOf(result, what) {
  return what === 'limit' ? result.smallest_limit : result.peak_reserved;
}

// The medians of a row's rounds; null where it was not served.
function ratiosOf(row, what) {
  return names.map((_, i) => {
    const found = row.rounds.map(round => [round.results[i], round.floor]);
    if (found.some(([result]) => result.failures > 0 || bytesOf(result, what) === null)) return null;
    return median(found.map(([result, floor]) => bytesOf(result, what) / floor));
  });
}

const timeOf = row => median(row.rounds.map(round => round.results[0].driver_share));
const floorOf = row => median(row.rounds.map(round => round.floor));

function verdictOf(row) {
  if (row.keeps_promise) return ['yes', 'good'];
  const memory = row.rounds.every(round => round.keeps_memory), time = row.rounds.every(round => round.keeps_time);
  return [memory ? 'time' : time ? 'memory' : 'both', 'bad'];
}

function newElement(name, attributes = {}, text = '') {
  const out = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, value);
  out.textContent = text;
  return out;
}

function newShape(name, attributes) {
  const out = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, value);
  return out;
}

// From the left edge, which is nothing, past the line, which is what was live.
function barsOf(ratios) {
  const svg = newShape('svg', { viewBox: '0 0 100 34', preserveAspectRatio: 'none', 'aria-hidden': true });
  ratios.forEach((ratio, i) => {
    if (ratio === null) return;
    const y = 1 + i * 8, isLonger = ratio > widest;
    const width = isLonger ? 94 : ratio / widest * 100;
    svg.append(newShape('rect', { x: 0, y, width, height: 7, class: 'b' + i }));
    if (isLonger) svg.append(newShape('path', { d: `M95 ${y}L100 ${y + 3.5}L95 ${y + 7}Z`, class: 'longer b' + i }));
  });
  const x = 100 / widest;
  svg.append(newShape('line', { x1: x, x2: x, y1: 0, y2: 34, 'vector-effect': 'non-scaling-stroke' }));
  return svg;
}

function chosen() {
  const value = Object.fromEntries(controls.map(name => [name, $(name).value]));
  const words = value.text.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const matches = row => {
    const text = `${row.group}: ${row.name} ${row.summary}`.toLowerCase();
    return (!words.length || words.some(word => text.includes(word))) && (!value.group || row.group === value.group) &&
      (!value.promise || row.keeps_promise === (value.promise === 'yes'));
  };
  const gain = row => {
    const [paged, usual, expandable] = ratiosOf(row, value.what);
    return Math.min(usual ?? Infinity, expandable ?? Infinity) / (paged ?? Infinity);
  };
  const keys = { paged: row => ratiosOf(row, value.what)[0] ?? Infinity, gain, time: timeOf };
  const rows = data.rows.filter(matches), key = keys[value.order];
  return key ? rows.sort((a, b) => key(b) - key(a)) : rows;
}

function showHead() {
  const titles = [['traffic', ''], ['live', 'less'], ['', 'bars'], ...names.map((name, i) => [name.replace('able', '\u00adable'), i === 3 ? 'less' : '']),
    ['driver time', 'less'], ['keeps', '']];
  const row = newElement('tr');
  row.append(...titles.map(([text, kind]) => newElement('th', { class: kind, scope: 'col' }, text)));
  row.querySelector('.bars').append(newElement('span', { style: `left: ${100 / widest}%` }, '1.0'));
  $('head').replaceChildren(row);
}

function rowOf(row, what) {
  const out = newElement('tr'), ratios = ratiosOf(row, what), [word, tone] = verdictOf(row);
  const name = newElement('td');
  // May break where words end, not within them.
  row.name.split('_').forEach((word, i) => name.append(...(i ? ['_', newElement('wbr')] : []), word));
  name.append(newElement('span', {}, row.summary));
  const bars = newElement('td', { class: 'bars' });
  bars.append(barsOf(ratios));
  const cells = ratios.map((ratio, i) => newElement('td', { class: i === 0 ? 'paged' : i === 3 ? 'less' : '' },
    ratio === null ? 'fails' : ratio.toFixed(3)));
  if (row.rounds.length > 1) {
    const all = row.rounds.map(round => bytesOf(round.results[0], what) / round.floor);
    cells[0].title = `${Math.min(...all).toFixed(3)} to ${Math.max(...all).toFixed(3)}`;
  }
  const keeps = newElement('td', { class: tone }, word);
  // Where there is no column for it.
  if (word === 'time' || word === 'both') keeps.append(newElement('span', { class: 'more' }, percent(timeOf(row))));
  out.append(name, newElement('td', { class: 'less' }, size(floorOf(row))), bars, ...cells,
    newElement('td', { class: 'less' }, percent(timeOf(row))), keeps);
  return out;
}

function factOf(text, label, tone = '') {
  const out = newElement('div');
  out.append(newElement('b', { class: tone }, text), newElement('span', {}, label));
  return out;
}

function show() {
  const rows = chosen(), what = $('what').value, out = [];
  let last = null;
  for (const row of rows) {
    if (!$('order').value && row.group !== last) {
      const group = newElement('tr', { class: 'group' });
      group.append(newElement('td', { colspan: 9 }, row.group));
      out.push(group);
    }
    last = row.group;
    out.push(rowOf(row, what));
  }
  $('rows').replaceChildren(...out);
  const kept = rows.filter(row => row.keeps_promise).length;
  const middle = i => {
    const found = rows.map(row => ratiosOf(row, what)[i]).filter(ratio => ratio !== null);
    return found.length ? median(found).toFixed(3) : '';
  };
  $('facts').replaceChildren(
    factOf(`${kept} of ${rows.length}`, 'rows keep the promise', kept === rows.length ? 'good' : 'bad'),
    ...names.map((name, i) => factOf(middle(i), `${name}, the median`)));
  $('subtitle').textContent = rows.length === data.rows.length
    ? `${rows.length} programs, seed ${data.seed}: what each allocator takes, over what is live`
    : `${rows.length} of ${data.rows.length} programs, seed ${data.seed}`;
}

function setUp() {
  showHead();
  for (const group of new Set(data.rows.map(row => row.group))) $('group').append(newElement('option', { value: group }, group));
  $('what-label').hidden = data.rows.every(row => row.rounds.every(round => round.results[0].smallest_limit === null));
  $('key').replaceChildren(...names.map((name, i) => {
    const out = newElement('span');
    out.append(newElement('i', { class: 'b' + i }), name);
    return out;
  }), newElement('span', {}, '| 1.0: what is live'), newElement('span', {}, `\u25b6 longer than ${widest}`));
  $('rule').textContent = data.promise;
  $('command').textContent = data.as_typed;
}

function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const name of controls) {
    const control = $(name), value = asked.get(name);
    if (value === null) continue;
    if (control.tagName !== 'SELECT' || [...control.options].some(option => option.value === value)) control.value = value;
  }
  show();
}

function writeAddress() {
  const parts = new URLSearchParams();
  for (const name of controls) if ($(name).value && !(name === 'what' && $(name).value === 'reserved')) parts.set(name, $(name).value);
  try { history.replaceState(null, '', '#' + parts); } catch { /* a browser that forbids it in files */ }
}

setUp();
follow();
$('controls').addEventListener('input', () => { show(); writeAddress(); });
$('controls').addEventListener('submit', event => event.preventDefault());
addEventListener('hashchange', follow);

#include "cli/plan_page_html.h"

namespace headroom::cli {

// The address may choose: page.html#batch=5&checkpoint=2 moves the controls as a hand would.
std::string_view plan_page_html() {
  return R"PAGE(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headroom plan: @MODEL@</title>
<style>
:root { --paper: #ffffff; --ink: #1c2330; --faint: #667085; --rule: #d8dde6; --panel: #f5f7fa;
  --bad: #b42318; --good: #1a7f4b; --c0: #4e79a7; --c1: #59a14f; --c2: #9c755f; --c3: #f28e2b;
  --c4: #e15759; --c5: #b07aa1; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161d; --ink: #e6eaf0; --faint: #98a2b3;
  --rule: #2c3442; --panel: #1a202a; --bad: #ff8a80; --good: #6fd39b; --c0: #6b9bd1;
  --c1: #74c06a; --c2: #b8927b; --c3: #ffa64d; --c4: #f07b7d; --c5: #c795b8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.25rem; margin: 0; }
p { margin: .25rem 0 1rem; color: var(--faint); }
form { display: flex; flex-wrap: wrap; gap: .75rem 1.25rem; background: var(--panel);
  border: 1px solid var(--rule); border-radius: .5rem; padding: .75rem 1rem; }
label { display: flex; flex-direction: column; flex: 1 1 9rem; font-size: .85rem;
  color: var(--faint); }
label b { color: var(--ink); font-variant-numeric: tabular-nums; }
input, select { font: inherit; width: 100%; min-height: 2rem; accent-color: var(--c0);
  color: var(--ink); background: var(--paper); border: 1px solid var(--rule);
  border-radius: .25rem; }
#facts { display: flex; flex-wrap: wrap; gap: .25rem 2rem; margin: 1rem 0 .25rem; }
#facts div { min-width: 9rem; }
#facts b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
#facts span { color: var(--faint); font-size: .85rem; }
label.short { max-width: 12rem; }
svg { width: 100%; height: 25rem; max-height: 60vh; display: block; }
svg text { fill: var(--faint); font: 13px system-ui, sans-serif; }
svg .peak { fill: var(--ink); font-weight: 600; }
svg .limit { stroke: var(--bad); stroke-dasharray: 6 4; stroke-width: 2; }
svg .limit-text { fill: var(--bad); }
svg .rule { stroke: var(--rule); }
table { border-collapse: collapse; width: 100%; margin-top: .75rem; font-size: .9rem; }
td, th { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid var(--rule);
  font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem;
  margin-right: .5rem; vertical-align: -1px; }
.bad { color: var(--bad); } .good { color: var(--good); }
</style>
</head>
<body>
<h1>@MODEL@: memory through a training step</h1>
<p id="about"></p>
<form id="controls" onsubmit="return false">
  <label id="depth-label">blocks <b id="depth-value"></b>
    <input id="depth" type="range" min="0" step="1"></label>
  <label>batch <b id="batch-value"></b>
    <input id="batch" type="range" min="0" step="1"></label>
  <label>precision <select id="precision"></select></label>
  <label>optimizer <select id="optimizer"></select></label>
  <label>checkpointing <select id="checkpoint"></select></label>
  <label class="short">limit, GiB <input id="limit" type="number" min="0" step="any" placeholder="none"></label>
</form>
<div id="facts">
  <div><b id="peak"></b><span>peak allocated, in <span id="when"></span></span></div>
  <div><b id="reserved"></b><span>peak reserved</span></div>
  <div><b id="again"></b><span>of the forward computed twice</span></div>
  <div><b id="verdict"></b><span id="room"></span></div>
</div>
<svg id="chart" preserveAspectRatio="none" role="img" aria-labelledby="peak"></svg>
<table><thead><tr><th>at the peak</th><th>size</th><th>bytes</th><th>share</th></tr></thead>
<tbody id="rows"></tbody></table>
<p>Every curve is a real step of headroom's own runtime, run on a device without memory. PyTorch keeps other
tensors for the same model and takes more. Sizes are binary.</p>
<script id="data" type="application/json">@DATA@</script>
<script>
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
function size(bytes) {
  let i = 0;
  while (bytes >= 1024 && i < units.length - 1) { bytes /= 1024; ++i; }
  return (i === 0 ? bytes : +bytes.toFixed(2)) + ' ' + units[i];
}
function decode(text, unit) {
  const out = [];
  let value = 0;
  for (const part of text ? text.split(',') : []) {
    if (part[0] === 'z') {
      for (let i = +part.slice(1); i > 0; --i) out.push(value * unit);
    } else {
      value += +part;
      out.push(value * unit);
    }
  }
  return out;
}
const choices = ['depth', 'batch', 'precision', 'optimizer', 'checkpoint'];
const lists = { depth: data.depths, batch: data.batches, precision: data.precisions,
  optimizer: data.optimizers, checkpoint: data.checkpoints };
function chosen() {
  let at = 0;
  for (const name of choices) at = at * lists[name].length + +$(name).value;
  return data.plans[at];
}
function element(name, attributes, text) {
  const out = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) out.setAttribute(key, attributes[key]);
  if (text !== undefined) out.textContent = text;
  return out;
}
function draw(plan, limit) {
  const chart = $('chart');
  // In the screen's own pixels, so that letters are as large on a phone.
  const width = chart.clientWidth || 900, height = chart.clientHeight || 400;
  chart.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const left = 4, right = width - 4, top_ = 34, bottom = height - 40;
  chart.replaceChildren();
  const series = plan.series.map(text => decode(text, plan.unit));
  const count = Math.max(...series.map(s => s.length), 1);
  const highest = Math.max(plan.peak, limit && limit < plan.peak * 3 ? limit : 0, 1) * 1.06;
  const x = i => left + (right - left) * i / Math.max(count - 1, 1);
  const y = v => bottom - (bottom - top_) * v / highest;
  const below = new Array(count).fill(0);
  let best = 0;
  series.forEach((values, k) => {
    let path = '';
    const above = below.map((b, i) => b + (values[i] || 0));
    for (let i = 0; i < count; ++i) path += (i ? 'L' : 'M') + x(i).toFixed(1) + ' ' + y(above[i]).toFixed(1);
    for (let i = count - 1; i >= 0; --i) path += 'L' + x(i).toFixed(1) + ' ' + y(below[i]).toFixed(1);
    const area = element('path', { d: path + 'Z', fill: 'var(--c' + k + ')', class: 'area' });
    area.append(element('title', {}, data.categories[k]));
    chart.append(area);
    above.forEach((v, i) => { below[i] = v; });
  });
  for (let i = 0; i < count; ++i) if (below[i] > below[best]) best = i;
  chart.append(element('line', { x1: left, x2: right, y1: bottom, y2: bottom, class: 'rule' }));
  let last = -200, before = '';
  for (const [name, begin] of plan.phases) {
    const at = left + (right - left) * begin;
    if (name === before) continue;
    before = name;
    chart.append(element('line', { x1: at, x2: at, y1: top_, y2: bottom + 8, class: 'rule' }));
    if (at - last < 90) continue;
    last = at;
    const near_end = at > right - 110;
    chart.append(element('text', { x: at + (near_end ? -4 : 4), y: bottom + 22,
      'text-anchor': near_end ? 'end' : 'start' }, name.replace('_', ' ')));
  }
  const px = x(best), py = y(below[best]);
  chart.append(element('circle', { cx: px, cy: py, r: 5, fill: 'var(--ink)' }));
  chart.append(element('text', { x: Math.min(Math.max(px, 70), right - 70), y: py - 10, class: 'peak',
    'text-anchor': 'middle' }, 'peak ' + size(plan.peak)));
  if (limit && limit < highest) {
    chart.append(element('line', { x1: left, x2: right, y1: y(limit), y2: y(limit), class: 'limit' }));
    chart.append(element('text', { x: right, y: y(limit) - 6, class: 'limit-text',
      'text-anchor': 'end' }, 'limit ' + size(limit)));
  }
}
function show() {
  const plan = chosen();
  const limit = +$('limit').value * 2 ** 30;
  $('depth-value').textContent = data.depths[+$('depth').value];
  $('batch-value').textContent = data.batches[+$('batch').value];
  $('peak').textContent = size(plan.peak);
  $('when').textContent = plan.when;
  $('reserved').textContent = size(plan.reserved);
  $('again').textContent = Math.round(plan.again * 100) + ' %';
  const fits = plan.reserved <= limit;
  $('verdict').textContent = limit ? (fits ? 'fits' : 'does not fit') : '';
  $('verdict').className = fits ? 'good' : 'bad';
  $('room').textContent = !limit ? '' : fits ? size(limit - plan.reserved) + ' to spare'
    : size(plan.reserved - limit) + ' too much';
  $('rows').replaceChildren(...plan.at.map((bytes, k) => {
    const row = document.createElement('tr');
    const name = row.insertCell();
    const mark = document.createElement('i');
    mark.style.background = 'var(--c' + k + ')';
    name.append(mark, data.categories[k]);
    for (const text of [size(bytes), bytes.toLocaleString('en'),
      (bytes / plan.peak * 100).toFixed(1) + ' %']) row.insertCell().textContent = text;
    return row;
  }));
  draw(plan, limit);
}
$('about').textContent = data.about + '. Planned for every combination below.';
for (const name of choices) {
  const control = $(name);
  if (control.tagName === 'SELECT') {
    lists[name].forEach((text, i) => control.add(new Option(text, i)));
  } else {
    control.max = lists[name].length - 1;
  }
  control.value = data.start[name];
  control.addEventListener('input', show);
}
if (data.depths.length < 2) $('depth-label').hidden = true;
if (data.limit) $('limit').value = +(data.limit / 2 ** 30).toFixed(3);
$('limit').addEventListener('input', show);
show();
function follow() {
  for (const part of location.hash.slice(1).split('&')) {
    const [name, value] = part.split('=');
    if (!choices.concat('limit').includes(name)) continue;
    $(name).value = value;
    $(name).dispatchEvent(new Event('input', { bubbles: true }));
  }
}
addEventListener('hashchange', follow);
addEventListener('resize', show);
follow();
// What the page asked for besides itself.
document.body.dataset.requests = performance.getEntriesByType('resource').length;
</script>
</body>
</html>
)PAGE";
}

}  // namespace headroom::cli

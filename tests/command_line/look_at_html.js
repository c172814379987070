// SPDX-License-Identifier: BSD-3-Clause
// What is wrong with how a report looks, as a list of sentences: things that overflow, texts of plots that touch each other or
// are cut off or too small, and contrast below WCAG's 4.5 for text and 3 for marks.
(() => {
  const problems = [];
  const say = text => { if (problems.length < 40) problems.push(text); };
  const shortly = element => `${element.tagName.toLowerCase()} "${(element.textContent || '').trim().slice(0, 40)}"`;

  // Colours as the browser has them: rgb(), rgba().
  const channels = colour => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = rgb => rgb.slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)];
    return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  };
  const visible = colour => colour && colour !== 'none' && (channels(colour).length < 4 || channels(colour)[3] > 0.99);
  const background = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (channels(colour).length === 3 || channels(colour)[3] > 0) return channels(colour);
    }
    return [255, 255, 255];
  };

  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > room) say(`the page is ${document.documentElement.scrollWidth} wide, there is room for ${room}`);
  for (const element of document.querySelectorAll('main *')) {
    if (element.closest('.scroll, pre, svg')) continue;
    const box = element.getBoundingClientRect();
    if (box.width > 0 && (box.right > room + 0.5 || box.left < -0.5)) say(`${shortly(element)} reaches from ${box.left} to ${box.right} of ${room}`);
  }

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest('script, style, title, desc, svg')) continue;
    const style = getComputedStyle(element);
    const seen = contrast(channels(style.color), background(element));
    if (seen < 4.5) say(`${shortly(element)}: contrast ${seen.toFixed(2)}`);
  }

  const marks = '.line, .mark, .axis, .used, .unused, .bar, .range, .whole, .hollow, .part0, .part1, .part2, .open';
  for (const svg of document.querySelectorAll('svg.plot')) {
    const frame = svg.getBoundingClientRect();
    const page = background(svg);
    const labels = Array.from(svg.querySelectorAll('text')).map(text => [text, text.getBoundingClientRect()]);
    labels.forEach(([text, box], i) => {
      if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        say(`${shortly(text)} is cut off: ${box.left}..${box.right} of ${frame.left}..${frame.right}`);
      if (box.height < 10) say(`${shortly(text)} is ${box.height.toFixed(1)} px high`);
      for (const [other, its] of labels.slice(i + 1)) {
        const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (wide > 0.5 && high > 3) say(`${shortly(text)} and ${shortly(other)} overlap`);
      }
      const seen = contrast(channels(getComputedStyle(text).fill), page);
      if (seen < 4.5) say(`${shortly(text)}: contrast ${seen.toFixed(2)}`);
    });
    for (const mark of svg.querySelectorAll(marks)) {
      const style = getComputedStyle(mark);
      const colours = [style.fill, style.stroke].filter(visible).map(channels);
      const seen = Math.max(...colours.map(colour => contrast(colour, page)));
      if (!(seen >= 3)) say(`a mark of class ${mark.getAttribute('class')}: contrast ${seen.toFixed(2)}`);
    }
    if (svg.getAttribute('role') === 'img' && !svg.querySelector('title').textContent) say('a plot without a title');
  }
  return problems;
})()

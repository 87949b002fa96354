function render({ model, el }) {
  const host = document.createElement("div");
  host.className = "kv-picture";
  host.setAttribute("role", "img");
  el.append(host);
  const shown = picture(host, model);
  const words = () => {
    host.setAttribute("aria-label", model.get("description"));
    host.classList.toggle("kv-stale", model.get("stale"));
  };
  const draw = () => shown.draw(model.get("spec"), model.get("rows"));
  model.on("change:description change:stale", words);
  model.on("change:spec change:rows", draw);
  words();
  draw();
  return () => {
    model.off("change:description change:stale", words);
    model.off("change:spec change:rows", draw);
    shown.close();
  };
}
function initialize({ model }) { keepListening(model).catch(() => {}); }
export default { initialize, render };

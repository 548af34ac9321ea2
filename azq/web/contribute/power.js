// Whether this machine has power to spare: battery and hidden tab, where the browser tells.

/** Calls `changed` whenever something did; `why(settings)` is empty, or says why the tab rests. */
export async function watchPower(changed) {
  const battery = await navigator.getBattery?.().catch(() => null);
  battery?.addEventListener("chargingchange", changed);
  document.addEventListener("visibilitychange", changed);
  return {
    tellsBattery: Boolean(battery),
    why: (settings) => (settings.battery && battery && !battery.charging ? "on battery" : settings.hidden && document.hidden ? "this tab is hidden" : ""),
  };
}

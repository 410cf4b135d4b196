"""The Gradle project around the API: a library module, a sample app, and an AI pack where one is asked for."""

from __future__ import annotations

from convertkit.targets.android.kotlin import ARRAYS, Api
from convertkit.targets.android.maven import Coordinates

PLUGIN, KOTLIN, GRADLE, COMPILE_SDK = "8.13.0", "2.2.21", "8.13", 36
"""Versions of the Android Gradle plugin, of Kotlin, of Gradle, and of the platform that is compiled against."""
_COROUTINES = "org.jetbrains.kotlinx:kotlinx-coroutines-core:1.10.2"

_PROPERTIES = "android.useAndroidX=true\norg.gradle.jvmargs=-Xmx2g\n"
_GITIGNORE = ".gradle/\nbuild/\nlocal.properties\n"
_MANIFEST = '<?xml version="1.0" encoding="utf-8"?>\n<manifest />\n'
_SAMPLE_MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android">
    <application android:label="{name}" android:theme="@android:style/Theme.Material.Light">
        <activity android:name=".MainActivity" android:exported="true">
            <intent-filter>
                <action android:name="android.intent.action.MAIN" />
                <category android:name="android.intent.category.LAUNCHER" />
            </intent-filter>
        </activity>
    </application>
</manifest>
"""


def project(api: Api, made: Coordinates, min_sdk: int) -> dict[str, str]:
    """The files of the project by their paths; sources of the API and of its test are others'."""
    short = api.package.short
    sample = f"sample/src/main/kotlin/{api.package.folder}/sample/MainActivity.kt"
    files = {
        "settings.gradle.kts": _settings(short, ai_pack=api.in_pack),
        "build.gradle.kts": _root(ai_pack=api.in_pack),
        "gradle.properties": _PROPERTIES,
        ".gitignore": _GITIGNORE,
        f"{short}/build.gradle.kts": _library(api, made, min_sdk),
        f"{short}/src/main/AndroidManifest.xml": _MANIFEST,
        "sample/build.gradle.kts": _sample(api, min_sdk),
        "sample/src/main/AndroidManifest.xml": _SAMPLE_MANIFEST.format(name=api.package.kotlin_class),
        sample: _activity(api),
    }
    return files | ({f"{short}_pack/build.gradle.kts": _pack(short)} if api.in_pack else {})


def packed_model(short: str, suffix: str) -> str:
    """Where an AI pack has its model: in the group of all devices that no other group is for.

    Source: Google Play, "Play for On-device AI", device targeting; the folder's suffix is taken off on delivery.
    """
    return f"{short}_pack/src/main/assets/model#group_other/{short}{suffix}"


def _settings(short: str, *, ai_pack: bool) -> str:
    modules = [f":{short}", ":sample", *[f":{short}_pack"] * ai_pack]
    included = ", ".join(f'"{module}"' for module in modules)
    return f"""pluginManagement {{
    repositories {{
        google()
        mavenCentral()
        gradlePluginPortal()
    }}
}}
dependencyResolutionManagement {{
    repositoriesMode.set(RepositoriesMode.FAIL_ON_PROJECT_REPOS)
    repositories {{
        maven {{ url = uri("../maven") }}
        google()
        mavenCentral()
    }}
}}
rootProject.name = "{short}"
include({included})
"""


def _root(*, ai_pack: bool) -> str:
    plugins = ["com.android.library", "com.android.application", *["com.android.ai-pack"] * ai_pack]
    lines = "".join(f'    id("{plugin}") version "{PLUGIN}" apply false\n' for plugin in plugins)
    return (
        f"// Gradle {GRADLE} or newer with a JDK of 17 or newer: gradle assembleDebug\n"
        f'plugins {{\n{lines}    id("org.jetbrains.kotlin.android") version "{KOTLIN}" apply false\n}}\n'
    )


def _library(api: Api, made: Coordinates, min_sdk: int) -> str:
    needed = (
        f'    api("{api.runtime.library}")\n    androidTestImplementation("{made}") // apps get it from the pack'
        if api.in_pack
        else f'    api("{made}") // the model; it brings {api.runtime.library}'
    )
    return f"""plugins {{
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}}

android {{
    namespace = "{api.package.text}"
    compileSdk = {COMPILE_SDK}
    defaultConfig {{
        minSdk = {min_sdk}
        testInstrumentationRunner = "androidx.test.runner.AndroidJUnitRunner"
    }}
    androidResources {{
        noCompress += "{api.suffix.rpartition(".")[2]}"
    }}
}}

kotlin {{
    jvmToolchain(17)
}}

dependencies {{
{needed}
    implementation("{_COROUTINES}")
    androidTestImplementation("androidx.test:runner:1.6.2")
    androidTestImplementation("androidx.test.ext:junit:1.2.1")
}}
"""


def _sample(api: Api, min_sdk: int) -> str:
    pack = f'    assetPacks += listOf(":{api.package.short}_pack")\n' if api.in_pack else ""
    return f"""plugins {{
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}}

android {{
    namespace = "{api.package.text}.sample"
    compileSdk = {COMPILE_SDK}
    defaultConfig {{
        applicationId = "{api.package.text}.sample"
        minSdk = {min_sdk}
        targetSdk = {COMPILE_SDK}
        versionCode = 1
        versionName = "1.0"
    }}
    androidResources {{
        noCompress += "{api.suffix.rpartition(".")[2]}"
    }}
{pack}}}

kotlin {{
    jvmToolchain(17)
}}

dependencies {{
    implementation(project(":{api.package.short}"))
}}
"""


def _pack(short: str) -> str:
    return f"""plugins {{
    id("com.android.ai-pack")
}}

aiPack {{
    packName = "{short}_pack"
    dynamicDelivery {{
        deliveryType = "install-time"
    }}
}}
"""


def _activity(api: Api) -> str:
    name = api.package.kotlin_class
    given = ", ".join(f"{ARRAYS[port.api]}({port.count})" for port in api.typed.ports.given)
    shown = " + ".join(
        f'"{port.variable}: " + outputs.{port.variable}.joinToString(limit = 10) + "\\n"'
        for port in api.typed.ports.returned
    )
    return f"""package {api.package.text}.sample

import android.app.Activity
import android.os.Bundle
import android.widget.TextView
import {api.package.text}.{name}

/** Runs the model once on zeros and shows what it returns. */
class MainActivity : Activity() {{
    override fun onCreate(savedInstanceState: Bundle?) {{
        super.onCreate(savedInstanceState)
        val view = TextView(this)
        setContentView(view)
        Thread {{
            {name}.open(this).use {{ model ->
                val outputs = model.run({given})
                val text = {shown}
                runOnUiThread {{ view.text = text }}
            }}
        }}.start()
    }}
}}
"""

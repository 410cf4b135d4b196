package kotlinx.coroutines

import kotlin.coroutines.CoroutineContext
import kotlin.coroutines.EmptyCoroutineContext

object Dispatchers {
    val Default: CoroutineContext = EmptyCoroutineContext
}

interface CoroutineScope

suspend fun <T> withContext(context: CoroutineContext, block: suspend CoroutineScope.() -> T): T =
    block(object : CoroutineScope {})
